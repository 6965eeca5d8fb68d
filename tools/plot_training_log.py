#!/usr/bin/env python3
"""Plot training runs from their logs: loss, test outputs such as accuracy, and learning rate.

    tools/plot_training_log.py lenet.png lenet.log
    tools/plot_training_log.py both.png lenet.log other.log
    tools/plot_training_log.py 0 accuracy.png lenet.log other.log

Logs are what bpt train or caffe train wrote to stderr. Several runs share one plot, and the best test of each is
marked. A number before the figure's name is one of the chart types of Caffe's program:

    0: Test accuracy vs. Iters           4: Train learning rate vs. Iters
    1: Test accuracy vs. Seconds         5: Train learning rate vs. Seconds
    2: Test loss vs. Iters               6: Train loss vs. Iters
    3: Test loss vs. Seconds             7: Train loss vs. Seconds

Exit status: 0 done; 1 the figure could not be written; 2 the command line is wrong, a file is no log of training, or
the figure's folder is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.apps.plot.log_figure import plot_logs
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    parser = Parser(prog="plot_training_log.py", description=__doc__)
    parser.usage = "plot_training_log.py [CHART_TYPE] OUTPUT LOG [LOG ...]"
    parser.add_argument("files", metavar="OUTPUT LOG", nargs="+", help="the figure (.png or .svg), then logs")
    return parser


def plot(arguments: argparse.Namespace) -> None:
    first, *rest = arguments.files
    chart = int(first) if rest and first.isascii() and first.isdigit() else None
    output, *logs = rest if chart is not None else arguments.files
    print(plot_logs(output, logs, chart))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), plot, words)


if __name__ == "__main__":
    sys.exit(main())
