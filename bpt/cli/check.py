"""``bpt check``: compare training on many ranks with training on one process."""

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
Trains some iterations on all ranks, as the solver's parallel_param says. Then trains the same iterations on one
process, from the same weights and data. For each parameter it prints two differences: that of the gradients in the
first iteration, and that of the weights after the last. Each is absolute, and relative to the parameter's largest
element. The command runs no tests and writes no files.
BatchNorm normalises the samples of each rank separately, which one process does not; sync_batch_norm avoids that.
schedule: DELAYED is compared with one process that trains the whole net and applies each layer's gradients as late.
exchange: LOCAL is compared with one process that trains all replicas in turn and averages them.

  mpirun -n 4 bpt check --solver prototxt/lenet/solver.prototxt
  mpirun -n 3 bpt check --solver S --set 'parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE } }'

With fault tolerance, the command can kill ranks when they reach an instruction. An instruction is a letter of a
trace, such as F, B2, X or U; the default is the start of the iteration. The other ranks continue, and must reach the
same weights.

  mpirun --with-ft ulfm -n 4 bpt check --solver S --kill 2@5 --kill 0@7:W

The command can also slow a rank down from an iteration on, or drop all messages between two ranks. Dropped messages
block the run, and fault_param { timeout } detects that. The run then continues without one of the two ranks, or ends
and reports which rank waits for which.

  mpirun -n 4 bpt check --solver S --slow 1=0.25@5
  mpirun --with-ft ulfm -n 4 bpt check --solver S --drop-link 1-2@5

The exit status is 1 if a relative difference is larger than the tolerance.
"""


PRECISIONS = ("double", "single")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt check``."""
    add_solver(parser)
    parser.flag("iterations", "iterations to train; default 10", metavar="N", type=positive, default=10)
    parser.flag(
        "precision",
        "precision of the numbers, double or single; default %(default)s. In double precision only mistakes show. "
        "Training uses single precision, in which rounding errors grow from iteration to iteration",
        choices=PRECISIONS,
        default="double",
        metavar="P",
    )
    help = "the largest relative difference that counts as rounding; default 1e-5"
    parser.flag("tolerance", help, metavar="X", type=tolerance, default=1e-5)
    parser.flag(
        "kill",
        "kill this rank in this iteration (the first is 0) when it reaches this instruction; give it once a rank",
        metavar="RANK@ITERATION[:INSTRUCTION]",
        type=kill_fault,
        action="append",
        default=[],
    )
    parser.flag(
        "stop",
        "stop this rank (SIGSTOP) in the same way, instead of killing it; fault_param { timeout } detects that",
        metavar="RANK@ITERATION[:INSTRUCTION]",
        type=stop_fault,
        action="append",
        default=[],
    )
    parser.flag(
        "slow",
        "slow this rank down to this fraction of its speed from this iteration on: 0.25 means four times as slow",
        metavar="RANK=FACTOR@ITERATION",
        type=slow_fault,
        action="append",
        default=[],
    )
    parser.flag(
        "drop-link",
        "drop all messages between these two ranks from this iteration on",
        metavar="RANK-RANK@ITERATION",
        type=dropped_link,
        action="append",
        default=[],
    )
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_state(parser)


def kill_fault(text: str, kind: signal.Signals = signal.SIGKILL) -> Fault:
    """Return the fault that ``RANK@ITERATION[:INSTRUCTION]`` describes, for argparse."""
    from bpt.apps.check.faults import Fault

    return Fault.parse(text, kind)


def stop_fault(text: str) -> Fault:
    """Return the fault that stops a rank as ``RANK@ITERATION[:INSTRUCTION]`` says, for argparse."""
    return kill_fault(text, signal.SIGSTOP)


def slow_fault(text: str) -> Slow:
    """Return the slow rank that ``RANK=FACTOR@ITERATION`` describes, for argparse."""
    from bpt.apps.check.faults import Slow

    return Slow.parse(text)


def dropped_link(text: str) -> DroppedLink:
    """Return the link that ``RANK-RANK@ITERATION`` describes, for argparse."""
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
    from bpt.base.log import plural
    from bpt.config.precision import FLOAT32, FLOAT64

    plan = plan_of(arguments)
    device = job.begin(plan, arguments.gpu)
    precision = FLOAT64 if arguments.precision == "double" else FLOAT32
    world = job.world
    faults = [*arguments.kill, *arguments.stop, *arguments.slow, *arguments.drop_link]
    check(faults, world.size, arguments.iterations, world.tolerant, plan.parallel_param.fault_param)
    if world.tolerant:
        world = world.Dup()  # a lost rank revokes this communicator, and the one of the whole job stays valid
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
        ranks = plural(job.world.size, "rank")
        raise RunError(f"{ranks} and one process differ by more than {arguments.tolerance:g} (relative) in {names}")
