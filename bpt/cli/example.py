"""``bpt example``: copy an example network, its solver and the script for its data into the current folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "copy an example network into the current folder, ready to train"
DESCRIPTION = """\
Copies an example network, its solvers and the script that makes its data into the current folder, and says what to
type next. Without a name it lists the examples.

  bpt example
  bpt example lenet

The network goes to prototxt/<name>/, scripts go to scripts/. The command never overwrites a file.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt example``."""
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the network to copy; default: list all")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt example``: copy an example network into the current folder, or list all."""
    from bpt.apps.commands.examples import copy_example, list_examples

    for line in copy_example(arguments.name) if arguments.name else list_examples():
        print(line)
