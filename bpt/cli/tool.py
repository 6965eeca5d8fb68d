"""What the programs in ``tools/`` have in common: Caffe's spellings of flags, one line for an error, an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bpt.cli.options import Parser
from bpt.comm.failure import Failure, nobody_reads
from bpt.errors import UsageError
from bpt.proto.rewrite import report
from bpt.proto.upgrade import Note

_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")  # gflags' words
LEVELDB = "LevelDB is neither read nor written; an LMDB holds the same records: --backend lmdb"


def add_switch(parser: Parser, name: str, help: str) -> None:
    """Add the flag ``--name``, which also may be written ``--name=true``, ``--name=false`` and ``--noname``."""
    parser.add_argument(f"-{name}", f"--{name}", help=help, action="store_true")
    parser.add_argument(f"-no{name}", f"--no{name}", help=argparse.SUPPRESS, action="store_false", dest=name)


def run_tool(parser: Parser, action: Callable[[argparse.Namespace], int | None], words: Sequence[str] | None) -> int:
    """Parse the ``words`` of a command line (``None``: this process's), call ``action``, and return the exit status.

    That is what ``action`` returns (``None``: 0); 1 if it failed while running; 2 if the command line or a file that
    the user wrote is wrong.
    """
    try:
        arguments = parser.parse_args(_without_values(parser, sys.argv[1:] if words is None else words))
        status = action(arguments) or 0
        sys.stdout.flush()
        return status
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError) and nobody_reads():
            return 1
        failure = Failure.of(error)
        failure.tell()
        return failure.status


def check_backend(name: str, flag: str = "--backend") -> None:
    """Refuse all databases but LMDB.

    Raises:
        UsageError: and why.
    """
    if name.lower() == "leveldb":
        raise UsageError(f"{flag} {name}: {LEVELDB.replace('--backend', flag)}")
    if name.lower() != "lmdb":
        raise UsageError(f'{flag} takes lmdb, found "{name}"')


def _without_values(parser: Parser, words: Sequence[str]) -> list[str]:
    """``words`` with ``--gray=true`` as ``--gray``, and ``--gray=false`` as ``--nogray``."""
    switches = {option for action in parser._actions if action.nargs == 0 for option in action.option_strings}
    found = []
    for word in words:
        flag, _, value = word.partition("=")
        if flag in switches and value.lower() in _TRUE:
            word = flag
        elif flag in switches and value.lower() in _FALSE:
            word = f"{'-' * (len(flag) - len(flag.lstrip('-')))}no{flag.lstrip('-')}"
        found.append(word)
    return found


def run_upgrade(
    program: str,
    description: str | None,
    what: str,
    done: str,
    rewrite: Callable[[str, str], Sequence[Note]],
    words: Sequence[str] | None,
) -> int:
    """Write INPUT upgraded to OUTPUT, tell on stderr what became of it, and return the exit status.

    Args:
        program: the program's file.
        description: for ``--help``.
        what: is in INPUT, for ``--help``.
        done: what is written, in Caffe's words, as in "NetParameter text proto".
        rewrite: from INPUT to OUTPUT.
        words: of the command line; ``None``: this process's.
    """

    def upgrade(files: argparse.Namespace) -> int:
        lines, status = report(done, files.input, files.output, rewrite(files.input, files.output))
        print(*lines, sep="\n", file=sys.stderr)
        return status

    parser = Parser(prog=Path(program).name, description=description)
    parser.add_argument("input", metavar="INPUT", help=what)
    parser.add_argument("output", metavar="OUTPUT", help="the file to write; may be INPUT")
    return run_tool(parser, upgrade, words)
