"""``bpt join``: continue a job of ``bpt run`` with other ranks."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, positive
from bpt.cli.run import add_job, job_of

HELP = "continue a job of bpt run with more ranks, fewer, or others"
DESCRIPTION = """\
Asks the job of a "bpt run" to write a snapshot and to stop after the current iteration. "bpt run" then starts the job
by another command, with more ranks, fewer, or others, and training continues. PROCESS is the id that bpt run logged.

  bpt join 4711 -- mpirun -n 6 --hostfile hosts bpt train --solver S --snapshot auto

If the new command is wrong (status 2), the job continues by the old one.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt join``."""
    help = "the id of the process of bpt run, on this host"
    parser.add_argument("process", type=positive, metavar="PROCESS", help=help)
    add_job(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run ``bpt join``: continue a job of ``bpt run`` with other ranks. Return the exit status."""
    from bpt.apps.commands.relaunch import join

    join(arguments.process, job_of(arguments))
    return 0
