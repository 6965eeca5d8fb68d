"""``bpt summary``: print the layers of a network as a table."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_model, add_shape, add_state, need, positive, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "list the layers of a network, and what they cost"
DESCRIPTION = """\
Lists the layers of a network: types, shapes of tops, parameters, floating-point operations and memory.

  bpt summary --model prototxt/lenet/train_val.prototxt
  bpt summary --model prototxt/googlenet/deploy.prototxt --batch_size 32
  bpt summary --model prototxt/alexnet/train_val.prototxt --phase TEST --csv

Operations are those of a forward pass of the batch; a multiply-add counts as two. Blobs of layers that work in place,
and of Flatten and Split, take no memory of their own. --csv prints plain numbers of operations and bytes. The command
does not need the data; without them, shapes follow from the text or from --shape.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt summary``."""
    add_model(parser)
    add_table(parser)
    parser.flag("csv", "print CSV", action="store_true")


def add_table(parser: Parser) -> None:
    """Add the flags that say what the table shows."""
    help = "the phase of the network: TRAIN or TEST; default TRAIN"
    parser.flag("phase", help, choices=("TRAIN", "TEST"), default="TRAIN", metavar="PHASE")
    parser.flag("batch_size", "samples of a batch; default: as in the text", metavar="N", type=positive, default=0)
    add_shape(parser)
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt summary``: print the layers of a network as a table."""
    need(arguments, "model", "the network's text")
    show(arguments, arguments.model)


def show(arguments: argparse.Namespace, model: str) -> None:
    """Print the table to stdout, and notes about assumptions to stderr."""
    # Imported here so that --help does not wait for numpy.
    from bpt.apps.commands.net_summary import summarize
    from bpt.apps.draw.layer_table import csv_text, text_lines

    summary, notes = summarize(
        model,
        arguments.phase,
        batch=arguments.batch_size,
        shape=arguments.shape,
        level=arguments.level,
        stages=words(arguments.stage),
    )
    for note in notes:
        print(note, file=sys.stderr)
    print(csv_text(summary) if arguments.csv else "\n".join([*text_lines(summary), ""]), end="")
