"""``bpt time``: how long a network takes, layer by layer and as a whole."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu, add_solver, add_state, positive, words
from bpt.errors import UsageError

HELP = "time every layer of a network"
DESCRIPTION = """\
Times a network: each layer by itself, and whole passes by themselves (the sum of the layers is not the time
of a pass: looking at every layer costs time too). Median ± half the quartile distance, after a warm-up.

  bpt time --model prototxt/lenet/train_val.prototxt
  bpt time --solver prototxt/lenet/solver.prototxt       the update too
"""


def add_arguments(parser: Parser) -> None:
    parser.flag("model", "the network's text file", metavar="FILE", default="")
    add_solver(parser)
    parser.flag("iterations", "passes to time (default 50)", metavar="N", type=positive, default=50)
    parser.flag("phase", "TRAIN or TEST (default TRAIN)", choices=("TRAIN", "TEST"), default="TRAIN")
    add_gpu(parser)
    add_state(parser)


def run(arguments: argparse.Namespace) -> None:
    if bool(arguments.model) == bool(arguments.solver):
        raise UsageError("bpt time needs one of --model and --solver: what to time")
    if arguments.solver and arguments.phase == "TEST":
        raise UsageError("--phase TEST goes with --model; a solver is timed as it trains")

    # Imported here so that --help does not wait for torch.
    from bpt.report.log import start_logging
    from bpt.solvers.benchmark import time_model, time_solver

    start_logging()
    if arguments.solver:
        time_solver(arguments.solver, arguments.set, arguments.iterations, arguments.gpu)
    else:
        if arguments.set:
            raise UsageError("--set overrides a solver's fields; it goes with --solver")
        time_model(
            arguments.model,
            arguments.phase,
            arguments.level,
            words(arguments.stage),
            arguments.iterations,
            arguments.gpu,
        )
