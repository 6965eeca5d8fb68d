"""Run a program of ``tools/`` so that it reports an error in one line, with an exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bpt.base.caller import on_command_line
from bpt.base.terminal import reopen_std_streams
from bpt.cli.options import Parser
from bpt.config.proto.rewrite import report
from bpt.config.proto.upgrade import Note
from bpt.system.comm.rank_failure import Failure, nobody_reads


def run_tool(parser: Parser, action: Callable[[argparse.Namespace], int | None], words: Sequence[str] | None) -> int:
    """Parse the ``words`` of a command line (``None``: this process's), call ``action``, and return the exit status.

    The exit status is what ``action`` returns (``None``: 0). It is 1 if the program failed while running, and 2 if the
    command line or a file that the user wrote is wrong.
    """
    reopen_std_streams()
    try:
        with on_command_line():
            arguments = parser.parse_args(words)
            status = action(arguments) or 0
        sys.stdout.flush()
        return status
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, BrokenPipeError) and nobody_reads():
            return 1
        failure = Failure.of(error)
        failure.report()
        return failure.status


def run_upgrade(
    program: str,
    description: str | None,
    what: str,
    done: str,
    rewrite: Callable[[str, str], Sequence[Note]],
    words: Sequence[str] | None,
) -> int:
    """Write INPUT upgraded to OUTPUT, report on stderr what changed, and return the exit status.

    Args:
        program: the program's file.
        description: the text for ``--help``.
        what: the help of INPUT.
        done: the kind of OUTPUT, in Caffe's words, as in "NetParameter text proto".
        rewrite: writes the second file from the first, and returns its notes.
        words: the words of the command line; ``None``: this process's.
    """

    def upgrade(files: argparse.Namespace) -> int:
        lines, status = report(done, files.input, files.output, rewrite(files.input, files.output))
        print(*lines, sep="\n", file=sys.stderr)
        return status

    parser = Parser(prog=Path(program).name, description=description)
    parser.add_argument("input", metavar="INPUT", help=what)
    parser.add_argument("output", metavar="OUTPUT", help="the file to write; may be INPUT")
    return run_tool(parser, upgrade, words)
