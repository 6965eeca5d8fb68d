"""``bpt classify``: classify pictures by a trained network."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, positive
from bpt.cli.pictures import add_how, add_network, check, loaded, print_answers

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "classify pictures by a trained network"
DESCRIPTION = """\
Prepares pictures in the same way as in training, runs the network, and lists the classes with the highest scores.

  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel cat.jpg dog.png
  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel --labels names.txt --top 3 folder/
  bpt classify --model train_val.prototxt --weights net_iter_1000.caffemodel --json list.txt

A folder means all images in it. A text (.txt) means the images that it lists, one a line. If each line ends in a
label, the last line of the output says how often the network is right. Without --labels the class names are those in
classes.txt beside --model, if it names as many classes as the network has. Mean, scale, crop, size and channels are
those of the data layer of --model. A text without a data layer (a deploy text) uses --preprocessing, or
<snapshot_prefix>_preprocessing.prototxt, which bpt train writes beside its snapshots. The command reports a damaged
picture and leaves it out; the exit status is 1 then.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt classify``."""
    add_network(parser, "the pictures to classify")
    parser.flag(
        "top", "the number of classes to list for each picture; default 5", metavar="N", type=positive, default=5
    )
    add_how(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt classify``: print the classes of pictures."""
    check(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.classify.classification import PictureClassifier, report_lines

    network, asked = loaded(arguments, job, PictureClassifier.of)
    print_answers(asked, lambda damaged: report_lines(network, asked, arguments.top, arguments.json, damaged))
