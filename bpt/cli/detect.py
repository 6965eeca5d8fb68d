"""``bpt detect``: find objects in pictures."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, real
from bpt.cli.pictures import add_how, add_network, check, loaded, print_answers

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "find objects in pictures, by a trained network"
DESCRIPTION = """\
Prepares pictures in the same way as in training, runs the network up to its DetectionOutput layer, and lists the
objects that it finds, by descending score. A line has the score, the class, and the corners of the box in pixels from
the upper left.

  bpt detect --model deploy.prototxt --weights net_iter_1000.caffemodel street.jpg
  bpt detect --model deploy.prototxt --weights W.caffemodel --labels labelmap.prototxt --output found folder/
  bpt detect --model train_val.prototxt --weights net_iter_1000.caffemodel --threshold 0.3 --json list.txt

A folder means all images in it. A text (.txt) means the images that it lists, one a line. The data layer of --model
says how pictures are prepared, or <snapshot_prefix>_preprocessing.prototxt beside the weights, or --preprocessing.
The network itself drops objects below the confidence_threshold of its DetectionOutput layer.
The command reports a damaged picture and leaves it out; the exit status is 1 then.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt detect``."""
    add_network(parser, "the pictures in which to find objects")
    parser.flag("threshold", "the lowest score to list; default 0.5", metavar="SCORE", type=real, default=0.5)
    parser.flag("output", "write pictures with their boxes to this folder, as PNG", metavar="FOLDER", default="")
    add_how(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt detect``: find objects in pictures."""
    check(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.detect.detection import Detector, report_lines

    network, asked = loaded(arguments, job, Detector.of)
    how = arguments.threshold, arguments.json, arguments.output
    print_answers(asked, lambda damaged: report_lines(network, asked, *how, damaged))
