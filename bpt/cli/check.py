"""``bpt check``: whether training on many ranks gives what one process gives."""

from __future__ import annotations

import argparse
import logging
import signal
from typing import TYPE_CHECKING

from bpt.base.errors import RunError
from bpt.cli.options import Parser, add_gpu, add_solver, add_state, need, plan_of, positive

if TYPE_CHECKING:
    from bpt.apps.check.faults import DroppedLink, Fault, Slow
    from bpt.apps.commands.job import Job

LOG = logging.getLogger("bpt")

HELP = "compare training on many ranks with one process"
DESCRIPTION = """\
Trains some iterations on all ranks, as the solver's parallel_param says, and the same on one process, from the same
weights and data. Prints for each parameter the largest difference of its gradient in the first iteration and of its
weights after the last: absolute, and relative to the parameter's largest element. Nothing is tested or written.
BatchNorm normalises each rank's samples by themselves, which one process does not, unless sync_batch_norm is set.
schedule: DELAYED is compared with one process that trains the whole net and applies each layer's gradients as late;
exchange: LOCAL with one process that trains all replicas in turn, and averages them.

  mpirun -n 4 bpt check --solver prototxt/lenet/solver.prototxt
  mpirun -n 3 bpt check --solver S --set 'parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE } }'

Under fault tolerance, ranks can be killed on the way, as they come to an instruction (the letter that a trace shows,
such as F, B2, X or U; without one, as the iteration begins): the others go on, and must come to the same weights.

  mpirun --with-ft ulfm -n 4 bpt check --solver S --kill 2@5 --kill 0@7:W

A rank can be slow from an iteration on, and two ranks can get no message of each other any more: then nobody gets on,
which fault_param { timeout } finds; the run goes on without one of the two, or ends and says who waits for whom.

  mpirun -n 4 bpt check --solver S --slow 1=0.25@5
  mpirun --with-ft ulfm -n 4 bpt check --solver S --drop-link 1-2@5

Exit status 1 if a relative difference is larger than the tolerance.
"""


PRECISIONS = ("double", "single")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt check``."""
    add_solver(parser)
    parser.flag("iterations", "iterations to train; default 10", metavar="N", type=positive, default=10)
    parser.flag(
        "precision",
        "of the numbers: in double precision only mistakes show; in single, which training uses, roundings grow from "
        "iteration to iteration as fast as the net is unstable; double or single, default %(default)s",
        choices=PRECISIONS,
        default="double",
        metavar="P",
    )
    help = "the largest relative difference that is only rounding; default 1e-5"
    parser.flag("tolerance", help, metavar="X", type=tolerance, default=1e-5)
    parser.flag(
        "kill",
        "let this rank be killed in this iteration, from 0 on, as it comes to this instruction; once for each rank",
        metavar="RANK@ITERATION[:INSTRUCTION]",
        type=killed,
        action="append",
        default=[],
    )
    parser.flag(
        "stop",
        "likewise, but let it stand still (SIGSTOP): it is found by fault_param { timeout }",
        metavar="RANK@ITERATION[:INSTRUCTION]",
        type=stopped,
        action="append",
        default=[],
    )
    parser.flag(
        "slow",
        "let this rank compute at this part of its speed from this iteration on: 0.25 is four times as long",
        metavar="RANK=FACTOR@ITERATION",
        type=slow,
        action="append",
        default=[],
    )
    parser.flag(
        "drop-link",
        "let these two ranks get no message of each other from this iteration on",
        metavar="RANK-RANK@ITERATION",
        type=dropped,
        action="append",
        default=[],
    )
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_state(parser)


def killed(text: str, kind: signal.Signals = signal.SIGKILL) -> Fault:
    """``RANK@ITERATION[:INSTRUCTION]``, for argparse."""
    from bpt.apps.check.faults import Fault

    return Fault.parse(text, kind)


def stopped(text: str) -> Fault:
    """Likewise, of a rank that stands still."""
    return killed(text, signal.SIGSTOP)


def slow(text: str) -> Slow:
    """``RANK=FACTOR@ITERATION``, for argparse."""
    from bpt.apps.check.faults import Slow

    return Slow.parse(text)


def dropped(text: str) -> DroppedLink:
    """``RANK-RANK@ITERATION``, for argparse."""
    from bpt.apps.check.faults import DroppedLink

    return DroppedLink.parse(text)


def tolerance(text: str) -> float:
    """Return a number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f'takes a number above 0, found "{text}"')
    return value


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt check``: compare training on many ranks with one process."""
    need(arguments, "solver", "the text file that says what to train and how")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.check.comparison import compare, result_lines
    from bpt.apps.check.faults import check
    from bpt.apps.commands.choosing import choose
    from bpt.config.precision import FLOAT32, FLOAT64

    plan = plan_of(arguments)
    device = job.begin(plan, arguments.gpu)
    precision = FLOAT64 if arguments.precision == "double" else FLOAT32
    world = job.world
    faults = [*arguments.kill, *arguments.stop, *arguments.slow, *arguments.drop_link]
    check(faults, world.size, arguments.iterations, world.tolerant, plan.parallel_param.fault_param)
    if world.tolerant:
        world = world.Dup()  # what is revoked there when a rank is lost leaves that of the whole job alone
    plan = choose(plan, world, device).plan
    compared, world = compare(plan, device, world, arguments.iterations, precision, faults)
    for line in result_lines(compared, arguments.tolerance) if world.rank == 0 else ():
        print(line)
    wrong = world.bcast([line.name for line in compared if not line.within(arguments.tolerance)])
    if not wrong:
        LOG.info("All ranks and one process agree: no relative difference is above %g", arguments.tolerance)
        if job.world.size == 1:
            LOG.info("That was one process against itself; mpirun -n 2 bpt check … compares two ranks with one process")
    else:
        names = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        ranks = f"{job.world.size} rank{'s' * (job.world.size > 1)}"
        raise RunError(f"{ranks} and one process differ by more than {arguments.tolerance:g} (relative) in {names}")
