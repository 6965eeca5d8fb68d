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
Prepares pictures as those were that the network was trained with, runs it up to its DetectionOutput layer, and lists
the objects that it finds, the surest first: score, class, and the corners of the box in pixels from the upper left.

  bpt detect --model deploy.prototxt --weights net_iter_1000.caffemodel street.jpg
  bpt detect --model deploy.prototxt --weights W.caffemodel --labels labelmap.prototxt --output found folder/
  bpt detect --model train_val.prototxt --weights net_iter_1000.caffemodel --threshold 0.3 --json list.txt

A folder stands for all images in it, a text (.txt) for those that it lists, one a line. What is done to pictures first
is said by the data layer of --model, by <snapshot_prefix>_preprocessing.prototxt beside the weights, or by
--preprocessing. Objects below the DetectionOutput layer's own confidence_threshold are never there.
A picture that is damaged is reported and left out, and the status is 1 then.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt detect``."""
    add_network(parser, "where objects are to be found")
    parser.flag("threshold", "the least score; default 0.5", metavar="SCORE", type=real, default=0.5)
    parser.flag("output", "write pictures with the boxes there, as PNG", metavar="FOLDER", default="")
    add_how(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt detect``: find objects in pictures."""
    check(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.detect.detection import Detector, report_lines

    network, asked = loaded(arguments, job, Detector.of)
    how = arguments.threshold, arguments.json, arguments.output
    print_answers(asked, lambda damaged: report_lines(network, asked, *how, damaged))
