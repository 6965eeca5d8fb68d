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

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_solver_text


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's); returns the exit status."""
    return run_upgrade(
        __file__, __doc__, "the solver, a prototxt", "SolverParameter text proto", rewrite_solver_text, words
    )


if __name__ == "__main__":
    sys.exit(main())
