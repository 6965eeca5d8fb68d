"""What the three upgrade programs in ``tools/`` have in common."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bpt.cli.options import Parser
from bpt.cli.tool import run_tool
from bpt.proto.rewrite import report
from bpt.proto.upgrade import Note


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
