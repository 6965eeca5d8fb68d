"""The link to a worker in a thread of the server's process."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from bpt.base.errors import DataError
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.train.outer.colocated import Colocated
from bpt.train.outer.messages import WorkerProgress
from bpt.train.outer.worker_links import Event, Submission, ToServer

STOP = Order(0, 2, weights=False, stop=True)


def started(work: Callable[[ToServer], object]) -> Colocated:
    link = Colocated()
    link.start(work)
    return link


def event(link: Colocated) -> Event:
    """The next one."""
    while (found := link.poll()) is None:
        pass
    return found


def test_orders_and_submissions() -> None:
    """All is handed over as it is; nothing travels."""
    seen: list[object] = []
    order, weights = Order(0, 1, Fraction(1), runs=((0, 5),)), np.ones(3, np.float32)
    report, trained = SubmissionReport(0, Fraction(1), 2, 5, 0.5), np.zeros(3, np.float32)

    def work(server: ToServer) -> None:
        server.report(Settled(0, 1, 1))
        seen.extend(server.order())
        server.report(WorkerProgress(0, 3, 0.5))
        server.submit(report, trained)
        seen.extend(server.order())

    link = started(work)
    assert event(link) == Settled(0, 1, 1)
    assert link.poll() is None and link.idle
    link.send(order, weights)
    assert event(link) == WorkerProgress(0, 3, 0.5)
    submission = event(link)
    assert isinstance(submission, Submission)
    assert submission.report is report and submission.weights is trained
    link.send(STOP, None)
    link.join()
    assert link.poll() is None
    assert seen[0] is order and seen[1] is weights
    assert seen[2:] == [STOP, None]
    assert (link.sent, link.received) == (0, 0)


def test_what_the_worker_raises_the_server_sees() -> None:
    """... behind what it has told before."""

    def work(server: ToServer) -> None:
        server.report(WorkerProgress(0, 1))
        raise DataError("record 5 is damaged")

    link = started(work)
    link.join()
    assert link.poll() == WorkerProgress(0, 1)
    with pytest.raises(DataError, match="record 5 is damaged"):
        link.poll()
    assert link.poll() is None


def test_hurry() -> None:
    """It holds until the next order comes, and is asked for as often as one likes."""
    seen: list[bool] = []

    def work(server: ToServer) -> None:
        server.order()
        seen.append(server.hurried)
        server.report(WorkerProgress(0, 1))
        while not server.hurried:
            pass
        seen.append(server.hurried)
        server.submit(SubmissionReport(0, Fraction(1, 2)), np.zeros(0))
        server.order()
        seen.append(server.hurried)

    link = started(work)
    link.send(Order(0, 0), None)
    assert event(link) == WorkerProgress(0, 1)
    link.hurry()
    link.hurry()
    assert isinstance(event(link), Submission)
    link.send(STOP, None)
    link.join()
    assert seen == [False, True, False]


def test_hurry_that_comes_too_late() -> None:
    """The worker has submitted already: its next order does not hurry."""
    seen: list[bool] = []

    def work(server: ToServer) -> None:
        server.submit(SubmissionReport(0, Fraction(1)), np.zeros(0))
        server.order()
        seen.append(server.hurried)

    link = started(work)
    assert isinstance(event(link), Submission)
    link.hurry()
    link.send(Order(0, 0), None)
    link.join()
    assert seen == [False]


def test_a_link_that_was_not_started() -> None:
    link = Colocated()
    link.join()
    assert link.poll() is None
