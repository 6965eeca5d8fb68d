"""``bpt time``: time a network layer by layer, and as a whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, add_gpu, add_model, add_precision, add_solver, add_state, plan_of, positive, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "time every layer of a network"
DESCRIPTION = """\
Times the forward and backward passes of a network: each layer, and whole passes separately. A pass takes less than the
sum of its layers, because timing every layer costs time. It shows the means in the lines of "caffe time", then a table
of medians ± half the distance of the quartiles, parameters and work. stdout gets the tables, too, without the log's
prefix. With --solver it also times the update. It tests nothing and writes nothing.

Under mpirun, --solver times training itself: the phases of an iteration on each rank (broadcast, forward, backward,
exchange, update), and for each layer the bytes that it sent and how long that took. With exchange: CGDP, a cost model
also predicts the time of backward and exchange in chunks of several sizes, beside the measured time. --profile measures
the speeds of the ranks.

--roofline also measures how fast this machine multiplies matrices and moves memory, with as many threads and in the
same precision. It compares each layer with the time that these speeds allow, and lists the layer that is farthest from
it first. With a file's name it also draws a picture (the extra plot).

With inner_param { engine: TASK_DAG } (or AUTO) it times both inner engines in turn: forward and backward by LIBRARY and
by TASK_DAG, the critical path of the tasks, and how the threads share the work and wait.

  bpt time --model prototxt/lenet/train_val.prototxt
  bpt time --model prototxt/lenet/train_val.prototxt --roofline lenet.svg
  bpt time --solver prototxt/lenet/solver.prototxt --set 'engine: CONTIGUOUS'
  bpt time --solver prototxt/lenet/solver.prototxt --set 'parallel_param { inner_param { engine: TASK_DAG } }'
  mpirun -n 4 bpt time --solver prototxt/lenet/solver.prototxt
  mpirun -n 4 bpt time --solver prototxt/lenet/solver.prototxt --profile speed.json
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt time``."""
    add_model(parser)
    add_solver(parser)
    parser.flag("iterations", "passes to time; default 50", metavar="N", type=positive, default=50)
    phases = ("TRAIN", "TEST")
    help = "the phase of the network: TRAIN or TEST; default TRAIN"
    parser.flag("phase", help, choices=phases, default="TRAIN", metavar="PHASE")
    parser.flag(
        "profile",
        "measure the time that each rank takes for several numbers of samples, on all ranks at once, and write it to "
        "this file, for balance: STATIC",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "roofline",
        "compare every layer with this machine's limits in operations and bytes a second; with FILE (.png or .svg), "
        "also draw them",
        metavar="FILE",
        nargs="?",
        const="",
    )
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_precision(parser, "; a solver has a field for it")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt time``: measure how long a network takes."""
    if bool(arguments.model) == bool(arguments.solver):
        raise UsageError("bpt time needs one of --model and --solver: what to time")
    if arguments.solver and arguments.phase == "TEST":
        raise UsageError("--phase TEST goes with --model; a solver is timed as it trains")
    if arguments.model and arguments.set:
        raise UsageError("--set overrides a solver's fields; it goes with --solver")

    if arguments.solver and arguments.precision != "FLOAT32":
        raise UsageError(
            f"--precision goes with --model; a solver has a field for it: --set 'precision: {arguments.precision}'"
        )
    if arguments.model and job.world.size > 1:
        raise UsageError("--model times one process: leave mpirun out, or give --solver to time training on all ranks")
    if arguments.profile and not arguments.solver:
        raise UsageError("--profile measures what a solver's ranks can do; it goes with --solver")
    if arguments.roofline is not None:
        check_roofline(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.commands.choosing import choose
    from bpt.perf.speeds.profiling import profile
    from bpt.perf.timing.benchmark import time_model, time_solver
    from bpt.perf.timing.phases import time_ranks

    if arguments.model:
        device = job.begin(gpu=arguments.gpu)
        stages = words(arguments.stage)
        time_model(
            arguments.model, arguments.phase, arguments.level, stages, device, arguments.iterations, arguments.roofline,
            arguments.precision,
        )  # fmt: skip
        return
    plan = plan_of(arguments)
    device = job.begin(plan, arguments.gpu)
    if arguments.profile:
        profile(plan, device, job.world, arguments.profile)
    elif job.world.size > 1:
        time_ranks(choose(plan, job.world, device).plan, device, job.world, arguments.iterations)
    else:
        time_solver(plan, device, arguments.iterations, arguments.roofline)


def check_roofline(arguments: argparse.Namespace, job: Job) -> None:
    """Raise a UsageError if the roofline, or the picture of it, is not possible."""
    if arguments.profile:
        raise UsageError("--roofline and --profile measure different things; give one of them")
    if job.world.size > 1:
        raise UsageError("--roofline measures one process: leave mpirun out")
    if arguments.roofline:
        from bpt.train.outer.report.style import check_figure

        check_figure("roofline", arguments.roofline, is_optional=True)
