"""``bpt report``: what its settings ask for, on one page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpt.apps.report.page import check_output, write_report
from bpt.apps.report.prediction_sections import prediction_sections
from bpt.apps.report.roofline_section import roofline_section
from bpt.apps.report.solver_sections import solver_sections
from bpt.apps.report.timeline_section import timeline_section
from bpt.base.errors import UsageError
from bpt.config.proto.sources import read_solver

PAUSE = 2.0  # seconds from one writing of a live page to the next


@dataclass(frozen=True)
class ReportRequest:
    """The settings of the command line; empty and ``None`` mean that the page does without.

    Attributes:
        runs: the metrics files.
        output: the page.
        solver: the solver's text, to show it, its network's text and the drawn network.
        weights: weights of the solver's network, to show its predictions.
        iterations: the number of batches for the predictions; by default the solver's first ``test_iter``.
        labels: the names of the classes of the predictions; see ``names_of_net``.
        trace: a trace in Chrome's format, to show the ranks' timeline.
        has_roofline: whether to time the solver's network and show its layers under this machine's roofs.
        is_live: whether to write the page again and again until all runs have ended.
    """

    runs: Sequence[str]
    output: str
    solver: str = ""
    weights: Sequence[str] = ()
    iterations: int | None = None
    labels: str = ""
    trace: str = ""
    has_roofline: bool = False
    is_live: bool = False


def report(request: ReportRequest) -> str:
    """Write the page, and return a line that says where.

    Raises:
        UserError: a setting or a file is wrong, or the page cannot be written.
    """
    if not request.solver and (request.weights or request.has_roofline):
        raise UsageError(f"{'--weights' if request.weights else '--roofline'} needs --solver: the network's texts")
    if request.iterations is not None and not request.weights:
        raise UsageError("--iterations is the number of batches for --weights; give --weights, too")
    if request.labels and not request.weights:
        raise UsageError("--labels names the classes of the predictions with --weights; give --weights, too")
    check_output(request.output)
    sections = list(_sections(request))
    while not write_report(request.runs, request.output, sections, request.is_live) and request.is_live:
        time.sleep(PAUSE)
    return f"wrote {request.output}"


def _sections(request: ReportRequest) -> Iterator[str]:
    solver = read_solver(request.solver) if request.solver else None
    if solver and request.weights:
        yield from prediction_sections(solver, request.weights, request.iterations, request.labels)
    if request.trace:
        yield from timeline_section(request.trace)
    if solver and request.has_roofline:
        yield from roofline_section(solver)
    if solver:
        yield from solver_sections(solver)
