"""``bpt time``: how long a network takes, layer by layer and as a whole."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu, add_model, add_solver, add_state, positive, set_state, words
from bpt.errors import UsageError

HELP = "time every layer of a network"
DESCRIPTION = """\
Times the forward and backward passes of a network: each layer by itself, and whole passes by themselves (the sum
of the layers is not the time of a pass: looking at every layer costs time too). Shows the means in the lines of
"caffe time", then a table of medians ± half the distance of the quartiles, parameters and work. With --solver the
update is timed, too; nothing is tested or written.

  bpt time --model prototxt/lenet/train_val.prototxt
  bpt time --solver prototxt/lenet/solver.prototxt --set 'engine: CONTIGUOUS'
"""


def add_arguments(parser: Parser) -> None:
    add_model(parser)
    add_solver(parser)
    parser.flag("iterations", "passes to time; default 50", metavar="N", type=positive, default=50)
    phases = ("TRAIN", "TEST")
    help = "the phase of the network: TRAIN or TEST; default TRAIN"
    parser.flag("phase", help, choices=phases, default="TRAIN", metavar="PHASE")
    add_gpu(parser, default="what solver_mode says, if it is set, else the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace) -> None:
    if bool(arguments.model) == bool(arguments.solver):
        raise UsageError("bpt time needs one of --model and --solver: what to time")
    if arguments.solver and arguments.phase == "TEST":
        raise UsageError("--phase TEST goes with --model; a solver is timed as it trains")
    if arguments.model and arguments.set:
        raise UsageError("--set overrides a solver's fields; it goes with --solver")

    # Imported here so that --help does not wait for torch.
    from bpt.device import choose_device
    from bpt.proto.solver import read_solver
    from bpt.report.log import start_logging
    from bpt.solvers.benchmark import time_model, time_solver

    if arguments.solver:
        source = read_solver(arguments.solver, arguments.set)
        set_state(source.param, arguments)
        start_logging()
        time_solver(source, choose_device(source.param, arguments.gpu), arguments.iterations)
    else:
        start_logging()
        device = choose_device(gpu=arguments.gpu)
        stages = words(arguments.stage)
        time_model(arguments.model, arguments.phase, arguments.level, stages, device, arguments.iterations)
