"""``bpt test``: score a model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import (
    Parser,
    add_gpu,
    add_labels,
    add_model,
    add_precision,
    add_state,
    add_strict,
    add_weights,
    need,
    positive,
    weights_of,
    words,
)

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "score a model"
DESCRIPTION = """\
Runs a network in its TEST phase over a number of batches. Logs the outputs of each batch, then their means, which
stdout gets, too, without the log's prefix. The batch size is the network's, so it scores the first --iterations ×
batch_size samples. Under mpirun, the ranks divide each batch; if a net cannot divide its samples, each rank runs whole
batches.

  bpt test --model prototxt/lenet/train_val.prototxt --weights snapshots/lenet/lenet_iter_1000.caffemodel

Flags add further scores. They are computed from the SoftmaxWithLoss layer, or without one from the Accuracy layer:

  bpt test ... --top_k 1,5 --per_class --auc --confusion confusion.png

By default it computes in single precision, also if the weights were trained in another; see --precision.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt test``."""
    add_model(parser)
    add_weights(parser, "the trained weights: .caffemodel, or HDF5")
    add_strict(parser)
    parser.flag("iterations", "number of batches; default 50", metavar="N", type=positive, default=50)
    add_gpu(parser, default="the CPU")
    add_precision(parser)
    add_state(parser)
    parser.flag("top_k", "report the share of labels among the K best scores", metavar="K[,K...]", default="")
    parser.flag(
        "per_class",
        "report the accuracy of each class; for detected objects, the average precision",
        action="store_true",
    )
    parser.flag(
        "ap_version",
        "how average precisions of detected objects are computed: 11point, MaxIntegral or Integral; default Integral",
        metavar="VERSION",
        choices=("11point", "MaxIntegral", "Integral"),
        default="Integral",
    )
    parser.flag("confusion", "write the confusion matrix to this .csv, .png or .svg", metavar="FILE", default="")
    parser.flag(
        "auc", "report the area under the ROC curve of each class against all others, as a mean", action="store_true"
    )
    add_labels(parser)
    parser.flag("class_names", "the same as --labels", metavar="FILE", default="")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt test``: score a model."""
    need(arguments, "model", "the network to score")
    need(arguments, "weights", "the trained model to score")
    weights = weights_of(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.score.metrics_report import Metrics
    from bpt.apps.score.score_model import score
    from bpt.train.state import MissingWeights

    if arguments.labels and arguments.class_names:
        raise UsageError("--labels and --class_names are the same; give one of them")
    labels = arguments.labels or arguments.class_names
    top_k = tuple(_top_k(word) for word in words(arguments.top_k))
    metrics = Metrics(top_k, arguments.per_class, arguments.confusion, arguments.auc, labels, arguments.ap_version)
    if labels and not metrics.names_classes:
        raise UsageError("--labels names the classes of --per_class and --confusion; give one of them, too")
    device = job.begin(gpu=arguments.gpu)
    stages = words(arguments.stage)
    score(
        arguments.model, weights, arguments.iterations, device, arguments.level, stages, job.world, metrics,
        arguments.precision, MissingWeights.REFUSE if arguments.strict else MissingWeights.WARN,
    )  # fmt: skip


def _top_k(word: str) -> int:
    try:
        return positive(word)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--top_k {error}") from None
