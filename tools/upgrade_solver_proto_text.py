#!/usr/bin/env python3
"""Write a solver that is in an old format of Caffe in today's.

    tools/upgrade_solver_proto_text.py old_solver.prototxt new_solver.prototxt

solver_type: RMSPROP becomes type: "RMSProp"; a solver with both fields is refused. Nets that are written inside the
solver (net_param and the like) are upgraded as tools/upgrade_net_proto_text.py does it; nets that it names by path are
left alone. bpt reads such files as they are; upgrade them to edit them. Comments get lost.

Exit status: 0 done; 1 written, but settings that had no meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; nothing is written then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli.options import Parser
from bpt.cli.tool import run_tool
from bpt.proto.rewrite import report, rewrite_solver_text


def upgrade(files: argparse.Namespace) -> int:
    """The exit status; see the text above."""
    notes = rewrite_solver_text(files.input, files.output)
    lines, status = report("SolverParameter text proto", files.input, files.output, notes)
    print(*lines, sep="\n", file=sys.stderr)
    return status


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's); returns the exit status."""
    parser = Parser(prog="upgrade_solver_proto_text.py", description=__doc__)
    parser.add_argument("input", metavar="INPUT", help="the solver, a prototxt")
    parser.add_argument("output", metavar="OUTPUT", help="the file to write; may be INPUT")
    return run_tool(parser, upgrade, words)


if __name__ == "__main__":
    sys.exit(main())
