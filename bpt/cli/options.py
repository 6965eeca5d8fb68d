"""Flags that several commands share, in all of Caffe's spellings: ``-solver x``, ``--solver x``, ``--solver=x``."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from bpt.base.errors import UsageError, did_you_mean
from bpt.base.glog import take_flags
from bpt.cli import foreign_flags

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job
    from bpt.config.plan.run_plan import RunPlan
    from bpt.train.state import MissingWeights


_FLAGS_OF = (
    (".prototxt", ("solver", "model")),
    (".caffemodel", ("weights",)),
    (".caffemodel.h5", ("weights",)),
    (".solverstate", ("snapshot",)),
    (".solverstate.h5", ("snapshot",)),
    ("", ("log",)),
)
"""End of a file's name → the flags that take such a file."""
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")  # gflags' words


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

    def switch(self, name: str, help: str) -> None:
        """Add the flag ``--name``, which also may be written ``--name=true``, ``--name=false`` and ``--noname``."""
        self.add_argument(f"-{name}", f"--{name}", help=help, action="store_true")
        self.add_argument(f"-no{name}", f"--no{name}", help=argparse.SUPPRESS, action="store_false", dest=name)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else args
        words = take_flags(words, [option for action in self._actions for option in action.option_strings])
        return super().parse_known_args(self._without_values(words), namespace)

    def _without_values(self, words: Sequence[str]) -> list[str]:
        """Return ``words`` with ``--gray`` for ``--gray=true``, and ``--nogray`` for ``--gray=false``."""
        options = {option for action in self._actions if action.nargs == 0 for option in action.option_strings}
        switches = {option for option in options if f"--no{option.lstrip('-')}" in options}
        found = []
        for word in words:
            flag, _, value = word.partition("=")
            if flag in switches and value.lower() in _TRUE:
                word = flag
            elif flag in switches and value.lower() in _FALSE:
                word = f"{'-' * (len(flag) - len(flag.lstrip('-')))}no{flag.lstrip('-')}"
            found.append(word)
        return found

    def error(self, message: str) -> NoReturn:
        hint = ""
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            hint = self._flag_for(unknown[1])
            if not hint and not os.path.isfile(unknown[1]):
                hint = did_you_mean(unknown[1].split("=")[0], self.long_flags())
        elif choice := re.match(r"argument <(\w+)>: invalid choice: '([^']*)' \(choose from (.*)\)", message):
            what, word, known = choice[1], choice[2], re.findall(r"\w+", choice[3])
            message = f'unknown {what} "{word}"'
            near = foreign_flags.COMMANDS.get(word.lower(), "") if what == "command" else ""
            meant = f'; did you mean "{near}"?' if near in known else did_you_mean(word, known)
            hint = self._flag_for(word) or meant or f" (known: {', '.join(known)})"
        elif flag := re.match(r"argument (?:-\w+/)?([^\s:]+): ", message):
            message = f"{flag[1]}: {message[flag.end() :]}"
            if value := re.fullmatch(r".*: ignored explicit argument '(.*)'", message):
                message = f'{flag[1]}: {self._switch_takes(flag[1])}, found "{value[1]}"'
        raise UsageError(f"{message}{hint or f' ({self.prog} --help explains)'}")

    def _switch_takes(self, flag: str) -> str:
        has_values = any(flag.replace("--", "--no", 1) in action.option_strings for action in self._actions)
        return "takes true or false" if has_values else "takes no value"

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Unknown flags of a sub-command reach the outer parser; the error must name the sub-command's flags.
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            inner = self._innermost(arguments)
            if inner.prog.split()[-1] == foreign_flags.COMMAND:
                hint = foreign_flags.hint_for(unknown, sys.argv[1:] if args is None else args)
                if hint:
                    raise UsageError(f"unrecognized arguments: {' '.join(unknown)}{hint}")
            inner.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments

    def check_begins_with_command(self, words: Sequence[str]) -> None:
        """Raise a UsageError if the command line begins with a flag of a command, and not with the command."""
        flag = f"--{words[0].partition('=')[0].lstrip('-')}" if words and words[0].startswith("-") else ""
        takers = [name for name, parser in self.commands().items() if flag in parser.long_flags()]
        if takers and flag not in self.long_flags():
            name = next((name for name in ("train", "test") if name in takers), takers[0])
            raise UsageError(f"a command comes before its flags; did you mean: bpt {name} {shlex.join(words)}")

    def commands(self) -> dict[str, Parser]:
        """Return each command's parser by the command's name."""
        return {name: parser for action in self._of_commands() for name, parser in action.choices.items()}

    def helps(self) -> dict[str, str]:
        """Return each command's short help by the command's name."""
        return {one.dest: one.help or "" for action in self._of_commands() for one in action._choices_actions}

    def command(self, name: str) -> Parser:
        """Return the parser of a command.

        Raises:
            UsageError: no command has that name. The error names the nearest one.
        """
        known = self.commands()
        if name not in known:
            raise UsageError(f'unknown command "{name}"{did_you_mean(name, list(known))}')
        return known[name]

    def long_flags(self) -> list[str]:
        """Return the parser's flags, as in ``--gpu``."""
        return [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]

    def _of_commands(self) -> list[argparse._SubParsersAction[Parser]]:
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def _innermost(self, arguments: argparse.Namespace) -> Parser:
        """Return the parser of the given command, or of the command within it."""
        for action in self._of_commands():
            chosen = action.choices.get(getattr(arguments, action.dest, None) or "")
            if chosen is not None:
                return chosen._innermost(arguments)
        return self

    def _flag_for(self, word: str) -> str:
        """Return a hint to the flag that takes the file ``word``; ``""`` if it is no file or no flag takes it."""
        if not os.path.isfile(word):
            return ""
        names = next(names for ending, names in _FLAGS_OF if word.endswith(ending))
        flags = self.long_flags()
        fitting = [name for name in names if f"--{name}" in flags]
        if self.prog.split()[-1] == foreign_flags.COMMAND:  # which writes its log
            fitting = [name for name in fitting if name != "log"]
        # If the command takes a solver and a network, the file's name decides: Caffe's solvers are called "solver".
        if len(fitting) > 1 and "solver" not in os.path.basename(word).lower():
            fitting.reverse()
        return f"; did you mean --{fitting[0]} {word}?" if fitting else ""


LEVELDB = "LevelDB is neither read nor written; an LMDB holds the same records: --backend lmdb"


def check_backend(name: str, flag: str = "--backend") -> None:
    """Refuse all databases except LMDB.

    Raises:
        UsageError: ``name`` is another database.
    """
    if name.lower() == "leveldb":
        raise UsageError(f"{flag} {name}: {LEVELDB.replace('--backend', flag)}")
    if name.lower() != "lmdb":
        raise UsageError(f'{flag} takes lmdb, found "{name}"')


def need(arguments: argparse.Namespace, flag: str, what: str) -> None:
    """Raise a UsageError unless ``--flag`` was given.

    argparse itself would ask for a missing flag before it reports a misspelt one.
    """
    if not getattr(arguments, flag):
        raise UsageError(f"bpt {arguments.command} needs --{flag}: {what}")


def need_one_process(arguments: argparse.Namespace, job: Job) -> None:
    """Raise a UsageError if the command runs on several ranks."""
    if job.world.size > 1:
        raise UsageError(f"bpt {arguments.command} runs on one process; leave mpirun out")


def add_solver(parser: Parser) -> None:
    """Add ``--solver`` and ``--set``."""
    parser.flag("solver", "the solver's text file", metavar="FILE", default="")
    parser.flag(
        "set",
        "override fields of the solver's file, in its format: 'max_iter: 100 solver_mode: CPU'. A list replaces the "
        "whole list. May be given more than once",
        metavar="TEXT",
        action="append",
        default=[],
    )


NO_PYTHON_LAYERS = "BPT_NO_PYTHON_LAYERS"
"""The environment variable with the meaning of the flag; bpt.nn.layers reads it."""


def add_no_python_layers(parser: Parser) -> None:
    """Add ``--no-python-layers``."""
    help = f'refuse networks with layers of type "Python", because they run code; {NO_PYTHON_LAYERS}=1 does the same'
    parser.flag("no-python-layers", help, action="store_true")


def add_model(parser: Parser) -> None:
    """Add ``--model``."""
    parser.flag("model", "the network's text file", metavar="FILE", default="")


def add_shape(parser: Parser, hint: str = "") -> None:
    """Add ``--shape``; ``hint`` is appended to the help."""
    help = f"shape of a sample (3x224x224), instead of the data set's{hint}"
    parser.flag("shape", help, metavar="CxHxW", type=shape, default=())


def add_state(parser: Parser) -> None:
    """Add ``--level`` and ``--stage``."""
    parser.flag(
        "level",
        "the network's level, which selects layers by their rules (min_level, max_level); default 0",
        metavar="N",
        type=whole,
        default=0,
    )
    parser.flag(
        "stage",
        "the network's stages, which select layers by their rules (stage, not_stage); default none",
        metavar="A[,B...]",
        default="",
    )


def plan_of(arguments: argparse.Namespace) -> RunPlan:
    """Return the plan of ``--solver`` with ``--set``, ``--weights``, ``--level`` and ``--stage`` applied.

    Raises:
        PrototxtError: the solver's text or the text of ``--set`` is wrong.
    """
    # Imported here so that --help does not wait for torch.
    from bpt.config.plan.resolve import resolve
    from bpt.config.proto.sources import read_solver

    weights = weights_of(arguments) if "weights" in arguments else ()
    source = read_solver(arguments.solver, arguments.set)
    return resolve(source, weights, arguments.level or 0, words(arguments.stage))


def add_gpu(parser: Parser, default: str) -> None:
    """Add ``--gpu``; ``default`` names the device without it."""
    help = (
        "compute on this CUDA device; bpt device_query lists them. Under mpirun, several devices "
        f'("0,1", or "all") go to the ranks of a machine in turn; default: {default}'
    )
    parser.flag("gpu", help, metavar="N[,N...]|all", default="")


PRECISIONS = ("FLOAT32", "FLOAT64", "BFLOAT16", "FLOAT16", "AUTO")


def add_precision(parser: Parser, hint: str = "") -> None:
    """Add ``--precision``; ``hint`` is appended to the help."""
    help = f"the numbers to compute in: {', '.join(PRECISIONS[:-1])}, or AUTO, which measures; default FLOAT32{hint}"
    parser.flag("precision", help, choices=PRECISIONS, default=PRECISIONS[0], metavar="NAME")


def add_weights(parser: Parser, help: str) -> None:
    """Add ``--weights``, which takes several files; ``help`` says what they are for."""
    help += "; a layer is taken from the last file that has it"
    parser.flag("weights", help, metavar="FILE[,FILE...]", default="")


def add_labels(parser: Parser) -> None:
    """Add ``--labels``, a file with the names of classes."""
    help = "the names of the classes: a text with one name a line, from class 0 on, or an SSD label map (.prototxt); "
    help += "default: classes.txt beside the network's text, if it has a name for each class"
    parser.flag("labels", help, metavar="FILE", default="")


def add_strict(parser: Parser) -> None:
    """Add ``--strict``, which refuses weights that lack a layer of the network."""
    help = "refuse weights that lack any layer of the network, even one that the outputs do not depend on"
    parser.flag("strict", help, action="store_true")


def add_missing_weights(parser: Parser) -> None:
    """Add ``--strict`` and ``--allow-random``, which missing_weights_of reads."""
    add_strict(parser)
    help = (
        "allow layers that the outputs depend on to be missing in the weights; their fillers draw random numbers. "
        "Without this flag the command refuses to run"
    )
    parser.flag("allow-random", help, action="store_true", dest="allow_random")


def missing_weights_of(arguments: argparse.Namespace) -> MissingWeights:
    """Return how to treat layers that no weights file has.

    Raises:
        UsageError: the flags contradict each other.
    """
    from bpt.train.state import MissingWeights

    if arguments.strict and arguments.allow_random:
        raise UsageError("--strict refuses layers that the weights lack, --allow-random allows them: give one of both")
    return MissingWeights.of_flags(arguments.strict, arguments.allow_random)


def weights_of(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the files of ``--weights``; an empty tuple without the flag."""
    files = words(arguments.weights)
    if arguments.weights and not files:
        raise UsageError(f'--weights "{arguments.weights}" names no file')
    return files


def words(text: str) -> tuple[str, ...]:
    """Return the non-empty words of a comma-separated flag."""
    return tuple(word for word in text.split(",") if word)


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f'takes a whole number of at least 1, found "{text}"')
    return value


def count(text: str) -> int:
    """Return a whole number of at least 0, for argparse."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f'takes a whole number of at least 0, found "{text}"')
    return int(text)


def whole(text: str) -> int:
    """Return a whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'takes a whole number, found "{text}"') from None


def real(text: str) -> float:
    """Return a finite number, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f'takes a number, found "{text}"')
    return value


def shape(text: str) -> tuple[int, ...]:
    """Return a shape such as 3x224x224, for argparse."""
    extents = text.split("x")
    if not all(extent.isascii() and extent.isdigit() and int(extent) for extent in extents):
        raise argparse.ArgumentTypeError(f'takes a shape such as 3x224x224, found "{text}"')
    return tuple(map(int, extents))
