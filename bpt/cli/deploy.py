"""``bpt deploy``: the text of a network for use, derived from the text that it is trained with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, add_model, add_state, need, shape, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "write the text of a network for use, from its train text"
DESCRIPTION = """\
Derives the deploy text of a network from the text that it is trained with: an Input layer of the right shape takes the
place of the data layers, a Softmax the place of a loss that contains one, and layers that need labels are left out.
Comments at the top say what was changed. The weights of the train text fit.

  bpt deploy --model train_val.prototxt --output deploy.prototxt
  bpt deploy --model train_val.prototxt

Without --output the text goes to the terminal. bpt classify, detect, explain and export take train texts themselves.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt deploy``."""
    add_model(parser)
    parser.flag("output", "the file to write; default: the terminal", metavar="FILE", default="")
    parser.flag(
        "shape", "shape of a sample (3x224x224), to do without the data set", metavar="CxHxW", type=shape, default=()
    )
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt deploy``: write the deploy text of a train text."""
    need(arguments, "model", "the text that the network is trained with")
    if job.world.size > 1:
        raise UsageError("bpt deploy runs on one process; leave mpirun out")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.pictures.deploy_text import deploy_text, write_deploy

    job.begin()
    text = deploy_text(arguments.model, arguments.level, words(arguments.stage), arguments.shape)
    if arguments.output:
        write_deploy(arguments.model, arguments.output, text)
        print(arguments.output)
    else:
        print(text, end="")
