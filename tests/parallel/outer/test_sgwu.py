"""SGWU by hand (Eq. 7): all submit, then all go on from the mean."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import AverageSubmitted, CutShort, Lost, Order, SendOrder, SubmissionReport
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.worker_table import WorkerState
from tests.parallel.outer.play import Play


def test_a_round_by_hand() -> None:
    """Q = 0.5, 0.25 and 0.25, submitted in another order than that of the workers."""
    schedule = Sgwu(Udpa(6, 3), Fraction(2))
    assert schedule.begin([None] * 3) == [
        SendOrder(Order(worker, 0, Fraction(1), Fraction(0), ((2 * worker, 2 * worker + 2),), batch=1))
        for worker in range(3)
    ]
    assert schedule.submitted(SubmissionReport(2, Fraction(1), samples=1, accuracy=0.25)) == []
    assert schedule.submitted(SubmissionReport(0, Fraction(1), samples=1, accuracy=0.5)) == []
    assert schedule.table.workers(WorkerState.SUBMITTED) == (0, 2)
    average, *sends = schedule.submitted(SubmissionReport(1, Fraction(1), samples=1, accuracy=0.25))
    assert average == AverageSubmitted((0, 1, 2), (0.5, 0.25, 0.25), 1)
    assert sends == [SendOrder(Order(worker, 1, Fraction(2), Fraction(1), batch=1)) for worker in range(3)]
    for worker in range(2):
        schedule.submitted(SubmissionReport(worker, Fraction(2), samples=1, accuracy=0.0))
    average, *sends = schedule.submitted(SubmissionReport(2, Fraction(2), samples=1, accuracy=0.8))
    assert average == AverageSubmitted((0, 1, 2), (0.0, 0.0, 1.0), 2)
    assert sends == [
        SendOrder(Order(worker, 2, Fraction(2), Fraction(2), weights=False, stop=True)) for worker in range(3)
    ]
    assert schedule.done


def test_the_quick_wait_for_the_slow() -> None:
    """Ten passes over 10 samples each, of which the slowest trains 1 a second."""
    play = Play(Sgwu(Udpa(30, 3), Fraction(10)), [1.0, 2.0, 10.0]).run()
    assert play.now == pytest.approx(100)
    assert [player.ended for player in play.players] == pytest.approx([100, 95, 91])


def test_batches_are_handed_out_when_all_have_submitted() -> None:
    """Alg. 3.1: 8 samples in 2 batches, 2 and 2 at first. Worker 1 takes three times as long: of 8, it is to have 2."""
    schedule = Sgwu(Idpa(8, 2, 2), Fraction(3))
    schedule.begin([1.0, 1.0])
    assert not schedule.hands_out(0)  # worker 1 is still at work
    assert schedule.submitted(SubmissionReport(0, Fraction(1), 1, 2, 2.0)) == []
    assert schedule.hands_out(1)
    _, first, second = schedule.submitted(SubmissionReport(1, Fraction(1), 1, 2, 6.0))
    assert first == SendOrder(Order(0, 1, Fraction(2), Fraction(1), ((4, 8),), batch=2))
    assert second == SendOrder(Order(1, 1, Fraction(2), Fraction(1), batch=2))
    schedule.submitted(SubmissionReport(0, Fraction(2), 1, 6, 6.0))
    assert not schedule.hands_out(1)  # there are no more


def test_a_worker_that_joins_takes_part_in_the_next_round() -> None:
    """3 samples a batch, of which worker 1 has none at first; its frequency says that it is 1000 times as slow."""
    schedule = Sgwu(Idpa(6, 2, 2), Fraction(3))
    schedule.begin([1000.0, 1.0])
    schedule.nodes[1].time = 1.0
    average, mine, other = schedule.submitted(SubmissionReport(0, Fraction(1), 1, 3, 3.0))
    assert average == AverageSubmitted((0,), (1.0,), 1)
    assert mine == SendOrder(Order(0, 1, Fraction(2), Fraction(1), batch=2))
    assert other == SendOrder(Order(1, 1, Fraction(2), Fraction(1), ((3, 6),), batch=2))
    assert schedule.submitted(SubmissionReport(0, Fraction(2), 1, 3, 3.0)) == []
    average, *_ = schedule.submitted(SubmissionReport(1, Fraction(2), 1, 3, 3.0))
    assert average == AverageSubmitted((0, 1), (0.5, 0.5), 2)


def test_nobody_waits_for_the_dead() -> None:
    """The others have submitted; what they get next is the samples of the dead one, and the mean without it."""
    schedule = Sgwu(Udpa(6, 3), Fraction(2))
    schedule.begin([None] * 3)
    schedule.submitted(SubmissionReport(0, Fraction(1), samples=1, accuracy=0.3))
    schedule.submitted(SubmissionReport(2, Fraction(1), samples=1, accuracy=0.1))
    assert schedule.lost(1) == [
        Lost((1,)),
        AverageSubmitted((0, 2), (pytest.approx(0.75), pytest.approx(0.25)), 1),  # type: ignore[arg-type]
        SendOrder(Order(0, 1, Fraction(2), Fraction(1), ((2, 3),), batch=1)),
        SendOrder(Order(2, 1, Fraction(2), Fraction(1), ((3, 4),), batch=1)),
    ]


def test_what_a_worker_had_submitted_when_it_died_does_not_count() -> None:
    schedule = Sgwu(Udpa(6, 3), Fraction(2))
    schedule.begin([None] * 3)
    schedule.submitted(SubmissionReport(0, Fraction(1), samples=1, accuracy=1.0))
    assert schedule.lost(0) == [Lost((0,))]
    schedule.submitted(SubmissionReport(1, Fraction(1), samples=1, accuracy=0.5))
    average, *_ = schedule.submitted(SubmissionReport(2, Fraction(1), samples=1, accuracy=0.5))
    assert average == AverageSubmitted((1, 2), (0.5, 0.5), 1)


def test_local_epochs() -> None:
    """Five passes, two at a time: after 2, 4 and 5 passes the workers meet."""
    play = Play(Sgwu(Udpa(20, 2), Fraction(5), local_epochs=2), [10.0, 10.0]).run()
    assert [each.version for each in play.log if isinstance(each, AverageSubmitted)] == [1, 2, 3]
    assert [each.order.until for each in play.log if isinstance(each, SendOrder) and not each.order.stop] == [
        2, 2, 4, 4, 5, 5
    ]  # fmt: skip


def test_a_stopped_run_takes_the_mean_of_what_there_is() -> None:
    """Worker 0 has ended its pass; worker 1 submits after 3 of 10 samples."""
    schedule = Sgwu(Udpa(20, 2), Fraction(5))
    schedule.begin([None] * 2)
    schedule.submitted(SubmissionReport(0, Fraction(1), 2, 10))
    schedule.stop()
    cut, average, *sends = schedule.submitted(SubmissionReport(1, Fraction(3, 10), 1, 3))
    assert cut == CutShort(1, Fraction(3, 10), 1)
    assert average == AverageSubmitted((0, 1), (0.5, 0.5), 1)
    assert all(isinstance(send, SendOrder) and send.order.stop for send in sends)
    assert schedule.done
