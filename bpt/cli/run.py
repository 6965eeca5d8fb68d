"""``bpt run``: start a job, and start it again when it fails."""

from __future__ import annotations

import argparse
import math

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, count

HELP = "start a job, and start it again when it fails"
DESCRIPTION = """\
Starts a job, and starts it again when it fails: when a rank is lost and the run cannot heal, or when all ranks are
lost. With --snapshot auto the job resumes from its newest snapshot.

  bpt run --restarts 3 -- mpirun -n 4 bpt train --solver S --snapshot auto

With parallel_param { fault_param { memory_snapshot: 10 } } the first rank's host has a snapshot in memory every 10
iterations. The job is not started again if it succeeds, if the command line or a file is wrong (status 2), if this
process gets SIGINT (Ctrl-C), SIGTERM or SIGHUP, or after too many restarts. The first such signal goes to a rank, which
stops the job with a snapshot; a second one goes to the command itself.

"bpt join" continues the job with more ranks, fewer, or others. The exit status is that of the last job.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt run``."""
    help = "largest number of restarts; default %(default)s"
    parser.flag("restarts", help, metavar="N", type=count, default=3)
    help = "count only restarts within this time, so that a long run may fail now and then; default: all"
    parser.flag("within", help, metavar="SECONDS", type=seconds, default=0.0)
    help = "seconds before the first restart; each further wait is twice as long, up to 60; default %(default)g"
    parser.flag("wait", help, metavar="SECONDS", type=seconds, default=1.0)
    add_job(parser)


def add_job(parser: Parser) -> None:
    """Add the argument ``-- COMMAND``, the command that starts a job."""
    parser.add_argument("job", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command that starts the job")


def job_of(arguments: argparse.Namespace) -> list[str]:
    """Return the words of the command that starts the job.

    Raises:
        UsageError: there are none.
    """
    job = list(arguments.job)
    job = job[1:] if job[:1] == ["--"] else job
    if not job:
        raise UsageError(
            f"bpt {arguments.command} needs a command that starts the job: … -- mpirun -n 4 bpt train --solver S "
            "--snapshot auto"
        )
    return job


def seconds(text: str) -> float:
    """Return a number of seconds, 0 or more, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f'takes a number of seconds of at least 0, found "{text}"')
    return value


def run(arguments: argparse.Namespace) -> int:
    """Run ``bpt run``: start a job, and start it again when it fails. Return the exit status."""
    from bpt.apps.commands.relaunch import Relaunch, RestartLimits
    from bpt.base.log import start_logging

    start_logging()
    return Relaunch(job_of(arguments), RestartLimits(arguments.restarts, arguments.within, arguments.wait)).run()
