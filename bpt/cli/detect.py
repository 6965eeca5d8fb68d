"""``bpt detect``: find objects in pictures."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_gpu, add_model, add_state, add_weights, need, real, weights_of, words

if TYPE_CHECKING:
    from bpt.commands.job import Job

HELP = "find objects in pictures, by a trained network"
DESCRIPTION = """\
Prepares pictures as those were that the network was trained with, runs it up to its DetectionOutput layer, and lists
the objects that it finds, the surest first: score, class, and the corners of the box in pixels from the upper left.

  bpt detect --model deploy.prototxt --weights net_iter_1000.caffemodel street.jpg
  bpt detect --model deploy.prototxt --weights W.caffemodel --labels labelmap.prototxt --output found folder/
  bpt detect --model train_val.prototxt --weights net_iter_1000.caffemodel --threshold 0.3 --json list.txt

A folder stands for all images in it, a text (.txt) for those that it lists, one a line. What is done to pictures first
is said by the data layer of --model, by <snapshot_prefix>_preprocessing.prototxt beside the weights, or by
--preprocessing. Objects below the DetectionOutput layer's own confidence_threshold are never there.
"""


def add_arguments(parser: Parser) -> None:
    add_model(parser)
    add_weights(parser, "the trained weights")
    parser.add_argument("pictures", nargs="*", metavar="IMAGE|FOLDER|LIST.txt", help="where objects are to be found")
    parser.flag(
        "labels",
        "the names of the classes: an SSD label map (.prototxt), or a text with one a line, from class 0 on",
        metavar="FILE",
        default="",
    )
    parser.flag("threshold", "the least score; default 0.5", metavar="SCORE", type=real, default=0.5)
    parser.flag("output", "write pictures with the boxes there, as PNG", metavar="FOLDER", default="")
    parser.flag("json", "a line of JSON for each picture", action="store_true")
    parser.flag("preprocessing", "how pictures are prepared; see above", metavar="FILE", default="")
    add_gpu(parser, default="the CPU")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    need(arguments, "model", "the network's text")
    need(arguments, "weights", "the trained weights")

    # Imported here so that --help does not wait for torch.
    from bpt.detect.detection import Detector, told
    from bpt.pictures.named_pictures import pictures
    from bpt.pictures.picture_net import BATCH

    device = job.begin(gpu=arguments.gpu)
    asked = pictures(arguments.pictures)
    detector = Detector.load(
        arguments.model,
        weights_of(arguments),
        device,
        min(len(asked), BATCH),
        labels=arguments.labels,
        preprocessing=arguments.preprocessing,
        level=arguments.level or 0,
        stages=words(arguments.stage),
    )
    for line in told(detector, asked, arguments.threshold, arguments.json, arguments.output):
        print(line, flush=True)
