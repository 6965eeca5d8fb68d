"""``bpt classify``: say what pictures show."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, positive
from bpt.cli.pictures import add_how, add_network, check, loaded, print_answers

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "say what pictures show, by a trained network"
DESCRIPTION = """\
Prepares pictures as those were that the network was trained with, runs it, and lists the classes that it gives most to.

  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel cat.jpg dog.png
  bpt classify --model deploy.prototxt --weights net_iter_1000.caffemodel --labels names.txt --top 3 folder/
  bpt classify --model train_val.prototxt --weights net_iter_1000.caffemodel --json list.txt

A folder stands for all images in it, a text (.txt) for those that it lists, one a line; if each line ends in a label,
the last line says how often the network is right. Without --labels the classes have the names in classes.txt beside
--model, if it names as many as there are. Mean, scale, crop, size and channels are those of the data layer of
--model; a text without one (a deploy text) goes by <snapshot_prefix>_preprocessing.prototxt, which bpt train writes
beside its snapshots, or by --preprocessing. A picture that is damaged is reported and left out, and the status is 1
then.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt classify``."""
    add_network(parser, "what is to be classified")
    parser.flag("top", "so many classes of each picture; default 5", metavar="N", type=positive, default=5)
    add_how(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt classify``: print the classes of pictures."""
    check(arguments)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.classify.classification import PictureClassifier, report_lines

    network, asked = loaded(arguments, job, PictureClassifier.of)
    print_answers(asked, lambda damaged: report_lines(network, asked, arguments.top, arguments.json, damaged))
