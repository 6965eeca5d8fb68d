"""``bpt help``: explain a command, or list all."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "explain a command, or list all"
DESCRIPTION = """\
Explains a command, as "bpt <command> --help" does. Without a command it lists all.

  bpt help train
  bpt help convert imageset
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt help``."""
    parser.add_argument("about", nargs="*", metavar="COMMAND", help="the command to explain; default: list all")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt help``: print the help of a command."""
    parser: Parser = arguments.whole
    for word in arguments.about:
        parser = parser.command(word)
    parser.print_help()
