"""What is written into a head is read from it, to the last bit."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.signals import SignalAction
from bpt.parallel.outer.outer_instructions import Order, Settled, SubmissionReport
from bpt.train.outer import messages as wire
from bpt.train.outer.messages import MessageKind, WorkerProgress
from bpt.train.outer.roles import NodeFacts
from bpt.train.solver.solver import RunOutcome

whole = st.integers(0, 2**53)
parts = st.fractions(0, 1000, max_denominator=2**40)
numbers = st.floats(allow_nan=False)
runs = st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), max_size=4).map(tuple)
orders = st.builds(Order, whole, whole, parts, parts, runs, whole, st.booleans(), st.booleans(), st.just(0), runs)
reports = st.builds(SubmissionReport, whole, parts, whole, whole, numbers, numbers, numbers, numbers)
words = st.builds(WorkerProgress, whole, whole, numbers, numbers, st.sampled_from(SignalAction), st.booleans())
EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True)


def sent(head: np.ndarray) -> np.ndarray:
    """A head as it arrives."""
    assert head.shape == (wire.LENGTH,) and head.dtype == np.float64
    arrived = wire.head()
    assert arrived.shape == head.shape and arrived.dtype == head.dtype and not arrived.any()
    arrived[:] = head
    return arrived


@EXAMPLES
@given(orders)
def test_orders(order: Order) -> None:
    head, runs = sent(wire.write_head(order)), wire.write_runs(order)
    assert wire.kind_of(head) is MessageKind.ORDER
    assert runs.shape == wire.empty_runs(head).shape and runs.dtype == np.int64
    back = wire.read_order(head, order.worker, runs.copy())
    assert back == order and repr(back) == repr(order)


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (WorkerProgress(3, 40, 1.5, 0.25, SignalAction.SNAPSHOT, True), [1, 40, 1.5, 0.25, 2, 1]),
        (SubmissionReport(3, Fraction(7, 4), 10, 640, 2.5, 0.5, 0.75, 1.25), [2, 7, 4, 10, 640, 2.5, 0.5, 0.75, 1.25]),
        (
            Order(3, 9, Fraction(5, 2), Fraction(1, 3), ((0, 10), (20, 30)), 6, False, True, 8),
            [3, 2, 9, 5, 2, 1, 3, 6, 0, 1],
        ),
        (
            Order(3, 9, Fraction(5, 2), Fraction(1, 3), ((0, 10),), 6, False, True, 8, ((20, 30), (40, 50))),
            [3, 1, 9, 5, 2, 1, 3, 6, 0, 1, 2],
        ),
        (Settled(3, 2, 1), [5, 2, 1]),
        (RunOutcome(100, True, False), [6, 100, 1, 0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_places_of_numbers_in_heads(message: wire.Message, numbers: list[float]) -> None:
    """Neither side can change the order of the numbers alone."""
    assert wire.write_head(message).tolist() == numbers + [0] * (wire.LENGTH - len(numbers))


def test_the_batch_stays_with_the_server() -> None:
    order = Order(3, 4, batch=2)
    back = wire.read_order(sent(wire.write_head(order)), 3, wire.write_runs(order))
    assert back == replace(order, batch=0)


@EXAMPLES
@given(reports)
def test_reports(report: SubmissionReport) -> None:
    head = sent(wire.write_head(report))
    assert wire.kind_of(head) is MessageKind.SUBMIT
    back = wire.read_head(SubmissionReport, head, worker=report.worker)
    assert back == report and repr(back) == repr(report)


def test_a_loss_that_is_not_known() -> None:
    back = wire.read_head(SubmissionReport, sent(wire.write_head(SubmissionReport(2, Fraction(1)))), worker=2)
    assert math.isnan(back.loss)


@EXAMPLES
@given(words)
def test_progress(progress: WorkerProgress) -> None:
    head = sent(wire.write_head(progress))
    assert wire.kind_of(head) is MessageKind.PROGRESS
    back = wire.read_head(WorkerProgress, head, worker=progress.worker)
    assert back == progress and repr(back) == repr(progress)


@pytest.mark.parametrize("engine", [0, 1, 2])
def test_settled(engine: int) -> None:
    head = sent(wire.write_head(Settled(5, engine, 1)))
    assert wire.kind_of(head) is MessageKind.SETTLED
    assert wire.read_head(Settled, head, worker=5) == Settled(5, engine, 1)


def test_hurry() -> None:
    assert wire.kind_of(sent(wire.hurry_head())) is MessageKind.HURRY


@pytest.mark.parametrize("outcome", [RunOutcome(0, False), RunOutcome(2**52, True), RunOutcome(3, False, True)])
def test_how_a_run_has_ended(outcome: RunOutcome) -> None:
    head = sent(wire.write_head(outcome))
    assert wire.kind_of(head) is MessageKind.FINISHED
    assert wire.read_head(RunOutcome, head) == outcome


def test_a_node_has_the_power_of_its_ranks() -> None:
    ranks = [NodeFacts("a", 2000.0, 2), NodeFacts("b", 1000.0, 1), NodeFacts("a", 500.0, 4)]
    assert NodeFacts.combined(ranks) == NodeFacts("a+b", 3500.0, 7)
    assert NodeFacts.combined(ranks[:1]) == ranks[0]


def test_of_one_of_its_ranks_it_is_unknown() -> None:
    assert NodeFacts.combined([NodeFacts("a", 2000.0, 2), NodeFacts("a", None, 2)]) == NodeFacts("a", None, 4)
