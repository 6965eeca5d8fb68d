"""``bpt watch``: show a run in the terminal while it goes on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, need

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "show a run in the terminal while it goes on"
DESCRIPTION = """\
Shows loss, scores, speed and what each rank is busy with, of the file that bpt train --metrics writes, until the run
ends or Ctrl-C. Where stdout is no terminal, it shows what there is, and ends.

  bpt train --solver solver.prototxt --metrics run.jsonl
  bpt watch --metrics run.jsonl
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt watch``."""
    parser.flag("metrics", "the file of JSON lines", metavar="FILE.jsonl", default="")
    parser.flag("once", "show what there is, and end", action="store_true")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt watch``: show a run in the terminal while it continues."""
    need(arguments, "metrics", "the file that bpt train --metrics writes")

    # Imported here so that --help does not wait for torch.
    from bpt.train.telemetry.live_view import watch

    watch(arguments.metrics, arguments.once)
