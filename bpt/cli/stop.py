"""``bpt stop``: let a run write a snapshot and stop."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_solver, need

HELP = "let a run write a snapshot and stop"
DESCRIPTION = """\
Asks the run of a solver on this host to write a snapshot and to stop after the current iteration, and waits until the
run has ended. It does not matter how the run was started, or what --sigint_effect says. This is the safe way to end a
run if mpirun is the main process of a container or a batch job.

  bpt stop --solver solver.prototxt

Call it in the folder in which the run was started. It finds the run by <snapshot_prefix>.lock. The exit status is 1 if
the run ended without a new snapshot.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt stop``."""
    add_solver(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run ``bpt stop``: let a run write a snapshot and stop. Return the exit status."""
    need(arguments, "solver", "the text file that the run was started with")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.commands.stopping import stop
    from bpt.base.log import start_logging
    from bpt.config.plan.resolve import resolve
    from bpt.config.proto.sources import read_solver

    start_logging()
    stop(resolve(read_solver(arguments.solver, arguments.set)))
    return 0
