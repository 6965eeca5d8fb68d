"""``bpt example``: a network that comes along, with its solver and what makes its data, in the current folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "copy a network that comes along into the current folder, ready to train"
DESCRIPTION = """\
Copies a network that comes along, with its solvers and the script that makes its data, into the current
folder, and says what to type next; without a name it lists them.

  bpt example
  bpt example lenet

The network goes to prototxt/<name>/, scripts to scripts/. What is there already stays as it is.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt example``."""
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="which network")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt example``: copy an example network into the current folder, or list all."""
    from bpt.apps.commands.examples import copy_example, list_examples

    for line in copy_example(arguments.name) if arguments.name else list_examples():
        print(line)
