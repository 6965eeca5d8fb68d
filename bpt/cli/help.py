"""``bpt help``: the same as --help."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser

if TYPE_CHECKING:
    from bpt.commands.job import Job

HELP = "explain a command, or list them all"
DESCRIPTION = """\
Explains a command, as "bpt <command> --help" does; without one it lists them all.

  bpt help train
"""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("about", nargs="?", default="", metavar="COMMAND", help="which command")


def run(arguments: argparse.Namespace, job: Job) -> None:
    from bpt.cli.main import make_parser

    parser: Parser = make_parser()
    if arguments.about:
        parser = parser.command(arguments.about)
    parser.print_help()
