"""``bpt test``: score a model."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu, add_model, add_state, add_weights, need, positive, weights_of, words

HELP = "score a model"
DESCRIPTION = """\
Runs a network in its TEST phase over a number of batches. Logs the outputs of each batch, then their means; the
batch size is the network's, so the first --iterations × batch_size samples are scored.

  bpt test --model prototxt/lenet/train_val.prototxt --weights snapshots/lenet/lenet_iter_1000.caffemodel
"""


def add_arguments(parser: Parser) -> None:
    add_model(parser)
    add_weights(parser, "the trained weights: .caffemodel, or HDF5")
    parser.flag("iterations", "how many batches; default 50", metavar="N", type=positive, default=50)
    add_gpu(parser, default="the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace) -> None:
    need(arguments, "model", "the network to score")
    need(arguments, "weights", "the trained model to score")
    weights = weights_of(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.device import choose_device
    from bpt.report.log import start_logging
    from bpt.solvers.score import score

    start_logging()
    score(
        arguments.model,
        weights,
        arguments.iterations,
        choose_device(gpu=arguments.gpu),
        arguments.level,
        words(arguments.stage),
    )
