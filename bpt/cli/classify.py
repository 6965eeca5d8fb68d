"""``bpt classify``: say what pictures show."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_gpu, add_model, add_state, add_weights, need, positive, weights_of, words

if TYPE_CHECKING:
    from bpt.commands.job import Job

HELP = "say what pictures show, by a trained network"
DESCRIPTION = """\
Prepares pictures as those were that the network was trained with, runs it, and lists the classes that it gives most to.

  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel cat.jpg dog.png
  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel --labels names.txt --top 3 folder/
  bpt classify --model train_val.prototxt --weights net_iter_1000.caffemodel --json list.txt

A folder stands for all images in it, a text (.txt) for those that it lists, one a line; if each line ends in a label,
the last line says how often the network is right. Mean, scale, crop, size and channels are those of the data layer of
--model; a text without one (a deploy text) goes by <snapshot_prefix>_preprocessing.prototxt, which bpt train writes
beside its snapshots, or by --preprocessing.
"""


def add_arguments(parser: Parser) -> None:
    add_model(parser)
    add_weights(parser, "the trained weights")
    parser.add_argument("pictures", nargs="*", metavar="IMAGE|FOLDER|LIST.txt", help="what is to be classified")
    parser.flag(
        "labels",
        "a text with the names of the classes, one a line, from class 0 on; or an SSD label map (.prototxt)",
        metavar="FILE",
        default="",
    )
    parser.flag("top", "so many classes of each picture; default 5", metavar="N", type=positive, default=5)
    parser.flag("json", "a line of JSON for each picture", action="store_true")
    parser.flag("preprocessing", "how pictures are prepared; see above", metavar="FILE", default="")
    add_gpu(parser, default="the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    need(arguments, "model", "the network's text")
    need(arguments, "weights", "the trained weights")

    # Imported here so that --help does not wait for torch.
    from bpt.classify.classification import Classifier, told
    from bpt.pictures.named_pictures import pictures
    from bpt.pictures.picture_net import BATCH

    device = job.begin(gpu=arguments.gpu)
    asked = pictures(arguments.pictures)
    classifier = Classifier.load(
        arguments.model,
        weights_of(arguments),
        device,
        min(len(asked), BATCH),
        labels=arguments.labels,
        preprocessing=arguments.preprocessing,
        level=arguments.level or 0,
        stages=words(arguments.stage),
    )
    for line in told(classifier, asked, arguments.top, arguments.json):
        print(line, flush=True)
