"""Flags that several commands take, in all spellings of Caffe's: ``-solver x``, ``--solver x``, ``--solver=x``."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from bpt.errors import UsageError, did_you_mean


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UsageErrors that name the nearest flag or command."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def flag(self, name: str, help: str, **kwargs: Any) -> None:
        """Add the flag ``--name``, also spelled ``-name``."""
        self.add_argument(f"-{name}", f"--{name}", help=help, **kwargs)

    def error(self, message: str) -> NoReturn:
        hint = ""
        if unknown := re.match(r"unrecognized arguments: (\S+)", message):
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            hint = did_you_mean(unknown[1].split("=")[0], flags)
        elif choice := re.match(r"argument <command>: invalid choice: '([^']*)' \(choose from (.*)\)", message):
            known = re.findall(r"\w+", choice[2])
            message = f'unknown command "{choice[1]}"'
            hint = did_you_mean(choice[1], known) or f" (known: {', '.join(known)})"
        raise UsageError(f"{message}{hint or f' ({self.prog} --help explains)'}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        # Unknown flags of a sub-command reach the outer parser; answer with the sub-command's own.
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = getattr(arguments, "command", None)
            self._parser_of(command).error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments

    def _parser_of(self, command: str | None) -> Parser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and command in action.choices:
                chosen = action.choices[command]
                assert isinstance(chosen, Parser)
                return chosen
        return self


def need(arguments: argparse.Namespace, flag: str, what: str) -> None:
    """Raise a UsageError unless ``--flag`` was given. (argparse would ask for it before it tells of a misspelt one.)"""
    if not getattr(arguments, flag):
        raise UsageError(f"bpt {arguments.command} needs --{flag}: {what}")


def add_solver(parser: Parser) -> None:
    parser.flag("solver", "the solver's text file", metavar="FILE", default="")
    parser.flag(
        "set",
        "text format merged over the solver, e.g. 'max_iter: 100 solver_mode: CPU'; may be repeated",
        metavar="TEXT",
        action="append",
        default=[],
    )


def add_state(parser: Parser) -> None:
    parser.flag("level", "the network's level (NetState; default 0)", metavar="N", type=int, default=0)
    parser.flag("stage", "the network's stages (NetState), separated by ','", metavar="A,B", default="")


def add_gpu(parser: Parser) -> None:
    parser.flag("gpu", 'compute on this CUDA device: its number, or "all"; default: the CPU', metavar="N", default="")


def add_weights(parser: Parser, help: str) -> None:
    parser.flag("weights", help, metavar="FILE[,FILE]", default="")


def words(text: str) -> tuple[str, ...]:
    """The non-empty words of a flag that separates them by commas."""
    return tuple(word for word in text.split(",") if word)


def positive(text: str) -> int:
    """A number of at least 1, for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value
