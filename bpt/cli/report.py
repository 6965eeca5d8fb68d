"""``bpt report``: write a page of results of training runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_labels, add_weights, need, need_one_process, positive, weights_of

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "write a page of results of training runs"
DESCRIPTION = """\
Writes one HTML page with the curves, the closing numbers and the loads of the ranks of training runs. The page is one
file and needs no network. A RUN is a file that bpt train --metrics writes. Several runs share charts and a table.

  bpt train --solver prototxt/lenet/solver.prototxt --metrics run.jsonl
  bpt report run.jsonl --output run.html
  bpt report run.jsonl other.jsonl --output both.html

--solver adds the drawn network and the texts of the solver and the network. With it, --weights adds the confusion
matrix on the test data and the worst mistakes, each with its evidence by Grad-CAM, and --roofline times the layers:

  bpt report run.jsonl --solver prototxt/lenet/solver.prototxt --output run.html \\
    --weights snapshots/lenet/lenet_iter_1000.caffemodel --roofline

--trace adds the timeline of the ranks. --live writes the page again and again while the runs train.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt report``."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a file of JSON lines that bpt train --metrics wrote")
    parser.flag("output", "the page: a file that ends in .html", metavar="FILE", default="")
    parser.flag(
        "solver", "show this solver's text, its network's text and the drawn network", metavar="FILE", default=""
    )
    add_weights(parser, "show predictions of the solver's network with these weights")
    parser.flag("iterations", "batches for --weights; default: the solver's test_iter", type=positive, metavar="N")
    add_labels(parser)
    parser.flag(
        "trace", "show the timeline of this trace, .json or .json.gz of bpt train --trace", default="", metavar="FILE"
    )
    parser.flag(
        "roofline", "time the solver's network, and show its layers under this machine's roofs", action="store_true"
    )
    parser.flag(
        "live", "write the page every few seconds, until the runs end; browsers load it again", action="store_true"
    )


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt report``: write a page of results of training runs."""
    need(arguments, "output", "the page to write")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.report.results_report import ReportRequest, report

    request = ReportRequest(
        arguments.runs, arguments.output, arguments.solver, weights_of(arguments), arguments.iterations,
        arguments.labels, arguments.trace, arguments.roofline, arguments.live,
    )  # fmt: skip
    print(report(request))
