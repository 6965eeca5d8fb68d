"""``bpt time``: how long a network takes, layer by layer and as a whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, add_gpu, add_model, add_precision, add_solver, add_state, plan_of, positive, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "time every layer of a network"
DESCRIPTION = """\
Times the forward and backward passes of a network: each layer by itself, and whole passes by themselves (the sum
of the layers is not the time of a pass: looking at every layer costs time too). Shows the means in the lines of
"caffe time", then a table of medians ± half the distance of the quartiles, parameters and work. With --solver the
update is timed, too; nothing is tested or written.

Started by mpirun, --solver times training itself: the phases of an iteration on each rank (broadcast, forward,
backward, exchange, update), and what each layer sent and how long that took. With exchange: CGDP, a cost model also
predicts how long backward and exchange take together, in chunks of several sizes, and shows that beside what was
measured. --profile measures the ranks' speeds.

--roofline also measures how fast this machine multiplies matrices and moves memory, by as many threads and in the same
precision, and shows how far each layer is above the time that this would allow, the farthest first; with a file's name
behind it, as a picture, too (the extra plot).

With inner_param { engine: TASK_DAG } (or AUTO) both inner engines are timed in turn: forward and backward by LIBRARY
and by TASK_DAG, the critical path of the tasks, and how the threads share the work and wait.

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
        "measure, on all ranks at once, how long each takes for how many samples, and write it to this file, for "
        "balance: STATIC",
        metavar="FILE",
        default="",
    )
    parser.flag(
        "roofline",
        "hold every layer against the roofs of this machine, operations and bytes a second; and draw that to this "
        "file, which ends in .png or .svg",
        metavar="FILE",
        nargs="?",
        const="",
    )
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_precision(parser, "; a solver says so in its text")
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
            f"--precision goes with --model; a solver's is a field of it: --set 'precision: {arguments.precision}'"
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
    """Raise a UsageError if there will be no roofline, or no picture of it where one is asked for."""
    if arguments.profile:
        raise UsageError("--roofline and --profile measure different things; give one of them")
    if job.world.size > 1:
        raise UsageError("--roofline is of one process: leave mpirun out")
    if arguments.roofline:
        from bpt.train.outer.report.style import check_figure

        check_figure("roofline", arguments.roofline, is_optional=True)
