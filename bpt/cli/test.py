"""``bpt test``: score a model."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu, add_state, add_weights, need, positive, words

HELP = "score a model"
DESCRIPTION = """\
Runs a network in its TEST phase over a number of batches and prints the mean of its outputs.

  bpt test --model prototxt/lenet/train_val.prototxt --weights snapshots/lenet/lenet_iter_1000.caffemodel
"""


def add_arguments(parser: Parser) -> None:
    parser.flag("model", "the network's text file", metavar="FILE", default="")
    add_weights(parser, "the trained weights")
    parser.flag("iterations", "how many batches (default 50)", metavar="N", type=positive, default=50)
    add_gpu(parser)
    add_state(parser)


def run(arguments: argparse.Namespace) -> None:
    need(arguments, "model", "the network to score")
    need(arguments, "weights", "the trained model to score")

    # Imported here so that --help does not wait for torch.
    from bpt.device import choose_device
    from bpt.report.log import start_logging
    from bpt.solvers.score import score

    start_logging()
    score(
        arguments.model,
        words(arguments.weights),
        arguments.iterations,
        choose_device(gpu=arguments.gpu),
        arguments.level,
        words(arguments.stage),
    )
