"""``bpt test``: score a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_gpu, add_model, add_state, add_weights, need, positive, weights_of, words

if TYPE_CHECKING:
    from bpt.commands.job import Job

HELP = "score a model"
DESCRIPTION = """\
Runs a network in its TEST phase over a number of batches. Logs the outputs of each batch, then their means; the
batch size is the network's, so the first --iterations × batch_size samples are scored. Started by mpirun, the ranks
divide each batch among them.

  bpt test --model prototxt/lenet/train_val.prototxt --weights snapshots/lenet/lenet_iter_1000.caffemodel
"""


def add_arguments(parser: Parser) -> None:
    add_model(parser)
    add_weights(parser, "the trained weights: .caffemodel, or HDF5")
    parser.flag("iterations", "how many batches; default 50", metavar="N", type=positive, default=50)
    add_gpu(parser, default="the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    need(arguments, "model", "the network to score")
    need(arguments, "weights", "the trained model to score")
    weights = weights_of(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.commands.score import score

    device = job.begin(gpu=arguments.gpu)
    stages = words(arguments.stage)
    score(arguments.model, weights, arguments.iterations, device, arguments.level, stages, job.world)
