"""``bpt deploy``: derive a network's deploy text from its train text."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_model, add_shape, add_state, need, need_one_process, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "write a network's deploy text from its train text"
DESCRIPTION = """\
Derives the deploy text of a network from the text that it is trained with: an Input layer of the right shape replaces
the data layers, a Softmax replaces a loss that contains one, and layers that need labels are left out. Comments at the
top say what was changed. The weights of the train text fit.

  bpt deploy --model train_val.prototxt --output deploy.prototxt
  bpt deploy --model train_val.prototxt

Without --output the text goes to the terminal. bpt classify, detect, explain and export take train texts themselves.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt deploy``."""
    add_model(parser)
    parser.flag("output", "the file to write; default: the terminal", metavar="FILE", default="")
    add_shape(parser)
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt deploy``: write the deploy text of a train text."""
    need(arguments, "model", "the text that the network is trained with")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.pictures.deploy_text import deploy_text, write_deploy

    job.begin()
    text = deploy_text(arguments.model, arguments.level, words(arguments.stage), arguments.shape)
    if arguments.output:
        write_deploy(arguments.model, arguments.output, text)
        print(arguments.output)
    else:
        print(text, end="")
