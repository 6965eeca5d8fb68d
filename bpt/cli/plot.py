"""``bpt plot``: plot curves of training runs from their logs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, need, need_one_process

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "plot the logs of training runs"
DESCRIPTION = """\
Draws loss, test outputs such as accuracy, and learning rate of training runs. A log is what bpt train or caffe train
wrote to stderr. Several runs share one figure, and the best test of each is marked.

  bpt train --solver prototxt/lenet/solver.prototxt 2> lenet.log
  bpt plot --output lenet.png --log lenet.log
  bpt plot --output both.svg --log lenet.log --log other.log

The training loss is the displayed one, which average_loss smooths. If a log contains a run that resumed from a
snapshot, the repeated iterations replace the earlier ones. tools/plot_training_log.py does the same with the chart
types of Caffe's program; tools/parse_log.py writes the numbers as CSV.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt plot``."""
    parser.flag("output", "the figure: a file that ends in .png or .svg", metavar="FILE", default="")
    parser.flag("log", "a run's log; may be given more than once", metavar="FILE", action="append", default=[])
    parser.flag(
        "against",
        "what is on the horizontal axis: iterations or seconds; default iterations",
        choices=("iterations", "seconds"),
        default="iterations",
        metavar="WHAT",
    )


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt plot``: plot curves of training runs from their logs."""
    need(arguments, "output", "the figure to write")
    need(arguments, "log", "what a run wrote to stderr")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.plot.log_figure import plot_logs

    print(plot_logs(arguments.output, arguments.log, seconds=arguments.against == "seconds"))
