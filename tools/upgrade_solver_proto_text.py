#!/usr/bin/env python3
"""Convert a solver from an old format of Caffe to today's format.

    tools/upgrade_solver_proto_text.py old_solver.prototxt new_solver.prototxt

solver_type: RMSPROP becomes type: "RMSProp"; a solver with both fields is an error. Nets inside the solver's text
(net_param and the like) are upgraded as by tools/upgrade_net_proto_text.py; nets that it names by path do not change.
bpt also reads old files without the upgrade; upgrade them to edit them. Comments are lost.

Exit status: 0 done; 1 written, but settings without meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; then nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_solver_text


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_upgrade(
        __file__, __doc__, "the solver, a prototxt", "SolverParameter text proto", rewrite_solver_text, words
    )


if __name__ == "__main__":
    sys.exit(main())
