"""``bpt watch``: show the progress of a run in the terminal."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, need

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "show the progress of a run in the terminal"
DESCRIPTION = """\
Reads the file that bpt train --metrics writes, and shows loss, scores, speed and the work of each rank, until the run
ends or you type Ctrl-C. It waits for a file that training has not made yet. If stdout is no terminal, it shows the
current state and ends.

  bpt train --solver solver.prototxt --metrics run.jsonl
  bpt watch --metrics run.jsonl
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt watch``."""
    parser.flag("metrics", "the file of JSON lines", metavar="FILE.jsonl", default="")
    parser.flag("once", "show the current state, and end", action="store_true")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt watch``: show the progress of a run in the terminal."""
    need(arguments, "metrics", "the file that bpt train --metrics writes")

    # Imported here so that --help does not wait for torch.
    from bpt.train.telemetry.live_view import watch

    watch(arguments.metrics, arguments.once)
