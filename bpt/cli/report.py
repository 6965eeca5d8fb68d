"""``bpt report``: write a page of results of training runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, need, need_one_process

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "write a page of results of training runs"
DESCRIPTION = """\
Writes one HTML page with the curves, the closing numbers and the loads of the ranks of training runs. The page is one
file and needs no network. A RUN is a file that bpt train --metrics writes. Several runs share charts and a table.

  bpt train --solver prototxt/lenet/solver.prototxt --metrics run.jsonl
  bpt report run.jsonl --output run.html
  bpt report run.jsonl other.jsonl --output both.html

--solver adds the drawn network and the texts of the solver and the network:

  bpt report run.jsonl --solver prototxt/lenet/solver.prototxt --output run.html
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt report``."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a file of JSON lines that bpt train --metrics wrote")
    parser.flag("output", "the page: a file that ends in .html", metavar="FILE", default="")
    parser.flag(
        "solver", "show this solver's text, its network's text and the drawn network", metavar="FILE", default=""
    )


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt report``: write a page of results of training runs."""
    need(arguments, "output", "the page to write")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.report.page import write_report

    print(write_report(arguments.runs, arguments.output, arguments.solver))
