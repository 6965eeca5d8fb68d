"""Flags that several commands take, in all spellings of Caffe's: ``-solver x``, ``--solver x``, ``--solver=x``."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from bpt.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from bpt.plan.spec import RunPlan


_FLAGS_OF = (
    (".prototxt", ("solver", "model")),
    (".caffemodel", ("weights",)),
    (".caffemodel.h5", ("weights",)),
    (".solverstate", ("snapshot",)),
    (".solverstate.h5", ("snapshot",)),
    ("", ("log",)),
)
"""End of a file's name → the flags that take such a file."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows a flag as ``-gpu, --gpu N`` and not ``-gpu N, --gpu N``."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UsageErrors that name the nearest flag or command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)

    def flag(self, name: str, help: str, **kwargs: Any) -> None:
        """Add the flag ``--name``, also spelled ``-name``."""
        self.add_argument(f"-{name}", f"--{name}", help=help, **kwargs)

    def error(self, message: str) -> NoReturn:
        hint = ""
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            hint = _flag_for(unknown[1], flags) or did_you_mean(unknown[1].split("=")[0], flags)
        elif choice := re.match(r"argument <command>: invalid choice: '([^']*)' \(choose from (.*)\)", message):
            known = re.findall(r"\w+", choice[2])
            message = f'unknown command "{choice[1]}"'
            hint = did_you_mean(choice[1], known) or f" (known: {', '.join(known)})"
        elif flag := re.match(r"argument (?:-\w+/)?([^\s:]+): ", message):
            message = f"{flag[1]}: {message[flag.end() :]}"
            if value := re.fullmatch(r".*: ignored explicit argument '(.*)'", message):
                message = f'{flag[1]}: {self._switch_takes(flag[1])}, found "{value[1]}"'
        raise UsageError(f"{message}{hint or f' ({self.prog} --help explains)'}")

    def _switch_takes(self, flag: str) -> str:
        has_values = any(flag.replace("--", "--no", 1) in action.option_strings for action in self._actions)
        return "takes true or false" if has_values else "takes no value"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Unknown flags of a sub-command reach the outer parser; answer with the sub-command's own.
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = getattr(arguments, "command", None)
            self._parser_of(command).error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments

    def command(self, name: str) -> Parser:
        """The parser of a command.

        Raises:
            UsageError: there is none of that name; the nearest is told.
        """
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                if name not in action.choices:
                    known = list(action.choices)
                    raise UsageError(f'unknown command "{name}"{did_you_mean(name, known)}')
                break
        return self._parser_of(name)

    def _parser_of(self, command: str | None) -> Parser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and command in action.choices:
                chosen = action.choices[command]
                assert isinstance(chosen, Parser)
                return chosen
        return self


def _flag_for(word: str, flags: Sequence[str]) -> str:
    """The hint that one of ``flags`` takes the file ``word``; ``""`` if that is no file, or none of them does."""
    if not os.path.isfile(word):
        return ""
    names = next(names for ending, names in _FLAGS_OF if word.endswith(ending))
    fitting = [name for name in names if f"--{name}" in flags]
    # Where both a solver and a network can be given, the file's name tells; Caffe's are called so.
    if len(fitting) > 1 and "solver" not in os.path.basename(word).lower():
        fitting.reverse()
    return f"; did you mean --{fitting[0]} {word}?" if fitting else ""


def need(arguments: argparse.Namespace, flag: str, what: str) -> None:
    """Raise a UsageError unless ``--flag`` was given. (argparse would ask for it before it tells of a misspelt one.)"""
    if not getattr(arguments, flag):
        raise UsageError(f"bpt {arguments.command} needs --{flag}: {what}")


def add_solver(parser: Parser) -> None:
    parser.flag("solver", "the solver's text file", metavar="FILE", default="")
    parser.flag(
        "set",
        "fields laid over those of the solver's file, in its own words: 'max_iter: 100 solver_mode: CPU'. "
        "A list replaces the whole list. May be given more than once",
        metavar="TEXT",
        action="append",
        default=[],
    )


NO_PYTHON_LAYERS = "BPT_NO_PYTHON_LAYERS"
"""The environment variable that does the same as the flag; bpt.layers looks at it."""


def add_no_python_layers(parser: Parser) -> None:
    help = f'refuse networks with layers of type "Python", which are code that is run; so does {NO_PYTHON_LAYERS}=1'
    parser.flag("no-python-layers", help, action="store_true")


def add_model(parser: Parser) -> None:
    parser.flag("model", "the network's text file", metavar="FILE", default="")


def add_state(parser: Parser) -> None:
    parser.flag(
        "level",
        "the network's level: takes the layers whose rules (min_level, max_level) fit it; default 0",
        metavar="N",
        type=whole,
        default=0,
    )
    parser.flag(
        "stage",
        "the network's stages: takes the layers whose rules (stage, not_stage) fit them; default none",
        metavar="A[,B...]",
        default="",
    )


def plan_of(arguments: argparse.Namespace) -> RunPlan:
    """The run of ``--solver``, with ``--set``, ``--weights``, ``--level`` and ``--stage`` laid over its text.

    Raises:
        PrototxtError: the text, or that of ``--set``, is wrong.
    """
    # Imported here so that --help does not wait for torch.
    from bpt.plan.resolve import resolve
    from bpt.proto.sources import read_solver

    weights = weights_of(arguments) if "weights" in arguments else ()
    source = read_solver(arguments.solver, arguments.set)
    return resolve(source, weights, arguments.level or 0, words(arguments.stage))


def add_gpu(parser: Parser, default: str) -> None:
    """Add ``--gpu``; ``default`` says what is used without it."""
    help = (
        "compute on this CUDA device; bpt device_query lists them. Under mpirun the ranks of a machine take several "
        f'("0,1", or "all") in turn; default: {default}'
    )
    parser.flag("gpu", help, metavar="N[,N...]|all", default="")


PRECISIONS = ("FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT16", "AUTO")


def add_precision(parser: Parser, hint: str = "") -> None:
    """Add ``--precision``; ``hint`` says what else there is to know."""
    help = f"the numbers to compute in: {', '.join(PRECISIONS[:-1])}, or AUTO, which measures; default FLOAT32{hint}"
    parser.flag("precision", help, choices=PRECISIONS, default=PRECISIONS[0], metavar="NAME")


def add_weights(parser: Parser, help: str) -> None:
    help += "; of several files the last that has a layer counts"
    parser.flag("weights", help, metavar="FILE[,FILE...]", default="")


def weights_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The files of ``--weights``; none if it was not given."""
    files = words(arguments.weights)
    if arguments.weights and not files:
        raise UsageError(f'--weights "{arguments.weights}" names no file')
    return files


def words(text: str) -> tuple[str, ...]:
    """The non-empty words of a flag that separates them by commas."""
    return tuple(word for word in text.split(",") if word)


def positive(text: str) -> int:
    """A number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'takes a whole number of at least 1, found "{text}"')
    return value


def whole(text: str) -> int:
    """A whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'takes a whole number, found "{text}"') from None


def real(text: str) -> float:
    """A finite number, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f'takes a number, found "{text}"')
    return value


def shape(text: str) -> tuple[int, ...]:
    """A shape such as 3x224x224, for argparse."""
    extents = text.split("x")
    if not all(extent.isascii() and extent.isdigit() and int(extent) for extent in extents):
        raise argparse.ArgumentTypeError(f'takes a shape such as 3x224x224, found "{text}"')
    return tuple(map(int, extents))
