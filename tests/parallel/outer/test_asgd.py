"""ASGD by hand: gradients come every ``push`` iterations, weights go after every ``fetch``."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import ApplyGradient, CutShort, Order, SendOrder, SubmissionReport
from bpt.parallel.outer.worker_table import WorkerRecord, WorkerState
from tests.parallel.outer.play import BATCH, Play


def orders(play: Play) -> list[Order]:
    return [each.order for each in play.log if isinstance(each, SendOrder)]


def updates(play: Play) -> list[tuple[int, int, int]]:
    """Of each update: whose, its base, and the newest version before it."""
    found = [each.update for each in play.log if isinstance(each, ApplyGradient)]
    return [(update.worker, update.base, update.newest) for update in found]


def test_every_iteration_is_pushed_and_fetched() -> None:
    """Four iterations of a worker that is alone, in two passes over ten samples."""
    play = Play(Asgd(Udpa(2 * BATCH, 1), Fraction(2)), [1.0]).run()
    halves = [Fraction(half, 2) for half in range(5)]
    assert [(order.passes, order.until, order.iterations) for order in orders(play)[:-1]] == [
        (halves[0], 1, 1), (halves[1], 1, 1), (halves[2], 2, 1), (halves[3], 2, 1)
    ]  # fmt: skip
    assert [order.version for order in orders(play)] == [0, 1, 2, 3, 4]
    assert [order.weights for order in orders(play)] == [True, True, True, True, False]
    assert updates(play) == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3)]


def test_learning_rates_follow_what_was_done_before() -> None:
    """Each of two workers makes two updates; together they do a quarter of the work with each."""
    play = Play(Asgd(Udpa(2 * BATCH, 2), Fraction(2)), [1.0, 1.0]).run()
    assert [4 * each.progress for each in play.log if isinstance(each, ApplyGradient)] == [0, 1, 2, 3]


def test_periods() -> None:
    """Seven iterations a pass, pushed two by two and one at the end; weights come after three iterations or more.

    So pushes end at iterations 2, 4, 6 and 7; 9, 11, 13 and 14. Those since the last fetch are 2 and 4, 2 and 3; then
    the same again. The base of an update is the version that was fetched last.
    """
    play = Play(Asgd(Udpa(7 * BATCH, 1), Fraction(2), push=2, fetch=3), [1.0]).run()
    assert [order.weights for order in orders(play)] == [True, *[False, True] * 3, False, False]
    assert [base for _, base, _ in updates(play)] == [0, 0, 2, 2, 4, 4, 6, 6]
    assert [order.passes * 7 for order in orders(play)] == [0, 2, 4, 6, 7, 9, 11, 13, 14]


def test_two_workers_take_turns() -> None:
    """The quick one trains two iterations while the slow one trains one; both have one pass of four."""
    play = Play(Asgd(Udpa(8 * BATCH, 2), Fraction(1)), [2.0, 0.999]).run()
    assert updates(play) == [
        (0, 0, 0), (0, 1, 1), (1, 0, 2), (0, 2, 3), (0, 4, 4), (1, 3, 5), (1, 6, 6), (1, 7, 7)
    ]  # fmt: skip


def test_a_batch_is_handed_out_at_the_end_of_a_pass() -> None:
    """Two batches of 2 iterations. Within a pass a worker keeps the samples that it has."""
    schedule = Asgd(Idpa(4 * BATCH, 1, 2), Fraction(3))
    assert schedule.begin([None]) == [
        SendOrder(Order(0, 0, Fraction(1), Fraction(0), ((0, 10),), iterations=1, batch=1))
    ]
    _, send = schedule.submitted(SubmissionReport(0, Fraction(1, 2), 1, BATCH, 1.0))
    assert send == SendOrder(Order(0, 1, Fraction(1), Fraction(1, 2), iterations=1, batch=1))
    _, send = schedule.submitted(SubmissionReport(0, Fraction(1), 1, BATCH, 1.0))
    assert send == SendOrder(Order(0, 2, Fraction(2), Fraction(1), ((10, 20),), iterations=1, batch=2))


def test_the_samples_of_a_dead_worker_come_with_the_next_pass() -> None:
    schedule = Asgd(Udpa(4 * BATCH, 2), Fraction(3))
    schedule.begin([None] * 2)
    schedule.lost(1)
    _, send = schedule.submitted(SubmissionReport(0, Fraction(1, 2), 1, BATCH, 1.0))
    assert isinstance(send, SendOrder) and send.order.runs == ()
    _, send = schedule.submitted(SubmissionReport(0, Fraction(1), 1, BATCH, 1.0))
    assert isinstance(send, SendOrder) and send.order.runs == ((10, 20),)


def test_a_cut_is_what_ends_before_the_push() -> None:
    """Three of five iterations, and a pass that has not ended; but not the one iteration that a pass ends with."""
    schedule = Asgd(Udpa(8 * BATCH, 1), Fraction(2), push=5)
    schedule.begin([None])
    assert len(schedule.submitted(SubmissionReport(0, Fraction(5, 8), 5, 5 * BATCH))) == 2
    assert len(schedule.submitted(SubmissionReport(0, Fraction(1), 3, 3 * BATCH))) == 2
    schedule.stop()
    cut, *_ = schedule.submitted(SubmissionReport(0, Fraction(11, 8), 3, 3 * BATCH))
    assert cut == CutShort(0, Fraction(11, 8), 3)


def test_passes_that_end_within_one_iteration_keep_the_bound() -> None:
    """Worker 0 has fewer samples than an iteration trains, so some of its reports are of no iterations at all."""
    schedule = Asgd(Udpa(2, 2), Fraction(10), max_staleness=1)
    schedule.begin([None] * 2)
    found = []
    for passes in range(1, 5):
        iterations = 1 if passes in (1, 4) else 0
        for worker in (0, 1):
            found += schedule.submitted(SubmissionReport(worker, Fraction(passes), iterations, iterations * BATCH))
    assert max(each.update.staleness for each in found if isinstance(each, ApplyGradient)) == 1


@pytest.mark.parametrize(
    ("taken", "hint", "before", "pace"),
    [
        ((0.0, 0), (0.0, 0), None, None),
        ((0.0, 0), (0.0, 0), 3.0, 3.0),
        ((0.0, 0), (2.0, 1), None, 2.0),  # little, but all there is
        ((0.0, 0), (4.0, 2), 3.0, 3.0),  # less than a quarter of 10
        ((0.0, 0), (10.0, 5), 3.0, 2.0),
        ((6.0, 3), (4.0, 2), 3.0, 2.0),  # within a pass, under ASGD
        ((6.0, 3), (0.0, 0), None, 2.0),
    ],
)
def test_the_newest_knowledge_of_the_speed_of_a_worker(
    taken: tuple[float, int], hint: tuple[float, int], before: float | None, pace: float | None
) -> None:
    record = WorkerRecord(WorkerState.TRAINING, samples=10, submitted=taken, time=before, reported=hint)
    assert record.seconds_per_sample() == pace


def test_a_hint_counts_until_the_next_submission() -> None:
    schedule = Asgd(Udpa(10, 1), Fraction(2), push=1)
    schedule.begin([None])
    schedule.progressed(0, 2, 4.0)
    assert schedule.nodes[0].seconds_per_sample() == 2.0
    schedule.submitted(SubmissionReport(0, Fraction(5, 10), 1, 5, 15.0))
    assert schedule.nodes[0].seconds_per_sample() == 3.0
    schedule.submitted(SubmissionReport(0, Fraction(1), 1, 5, 25.0))
    assert schedule.nodes[0].seconds_per_sample() == 4.0
