"""What SGWU, AGWU and ASGD have in common: who has which samples, who trains how often, and that every run ends."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from bpt.base.errors import RunError
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    CutShort,
    Lost,
    Merge,
    Order,
    SendOrder,
    SubmissionReport,
)
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.worker_table import WorkerState
from tests.parallel.outer.play import BALANCES, Play, conserved, random_schedule


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_whatever_happens(exchange: str, balance: str) -> None:
    """On random clusters, of which some nodes die and some get no samples at first, all samples stay, and all runs
    end, after K' passes of each worker."""
    for seed in range(250):
        generator = random.Random(seed)
        workers = generator.randint(1, 6)
        schedule = random_schedule(exchange, balance, generator, workers)
        speeds = [generator.choice([1, 2, 10]) * generator.uniform(1, 2) for _ in range(workers)]
        lost = generator.sample(range(workers), generator.choice([0, 0, generator.randint(0, workers - 1)]))
        play = Play(
            schedule, speeds, [generator.choice([None, 0.01, 1.0, 1.5]) for _ in speeds],
            {worker: generator.uniform(0, 30) for worker in lost}, hints=generator.random() < 0.5, check=conserved,
        ).run()  # fmt: skip
        assert schedule.idpa.done and schedule.progress == 1
        for player in play.players:
            if player.stopped and player.runs:
                assert player.passes == schedule.total
                assert player.missed.denominator == 1 and (lost or player.missed < schedule.idpa.batches)
            elif player.stopped:
                assert not player.trained
        staleness = [each.update.staleness for each in play.log if isinstance(each, Merge | ApplyGradient)]
        bound = schedule.versions._max_staleness if isinstance(schedule, Agwu) else 0
        assert not bound or max(staleness) <= bound


@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_stopped_at_any_moment(exchange: str) -> None:
    """Everybody submits once more, and is told to stop; what was less than ordered is on record."""
    cuts = 0
    for seed in range(150):
        generator = random.Random(seed)
        workers = generator.randint(1, 5)
        schedule = random_schedule(exchange, "HARMONIC", generator, workers)
        speeds = [generator.uniform(1, 20) for _ in range(workers)]
        play = Play(schedule, speeds, stops=generator.uniform(0, 20), check=conserved).run()
        assert all(player.stopped for player in play.players)
        for cut in (each for each in play.log if isinstance(each, CutShort)):
            player = play.players[cut.worker]
            assert cut.passes == player.passes < schedule.total
            cuts += 1
    assert cuts > 20


@pytest.mark.parametrize(
    ("passes", "batches", "total"),
    # K' = A + ⌊K - (A + 1)/2⌋, and the part of a pass that is over
    [("10", 1, "10"), ("10", 4, "11"), ("10", 5, "12"), ("21/2", 4, "23/2"), ("4", 4, "5"), ("1/2", 1, "1/2")],
)
def test_how_many_passes_a_worker_makes(passes: str, batches: int, total: str) -> None:
    """Eq. 6."""
    assert Agwu(Idpa(20, 2, batches), Fraction(passes)).total == Fraction(total)


def test_a_worker_without_samples_waits_for_the_next_batch() -> None:
    """The quick one has all 3 samples of batch 1. Known better, the other gets those of the next; it missed a pass."""
    schedule = Agwu(Idpa(9, 2, 3), Fraction(4))
    assert schedule.begin([1000.0, 1.0]) == [SendOrder(Order(0, 0, Fraction(1), Fraction(0), ((0, 3),), batch=1))]
    assert [node.state for node in schedule.nodes] == [WorkerState.TRAINING, WorkerState.PARKED]
    schedule.nodes[1].time = 1000.0
    _, mine, other = schedule.submitted(SubmissionReport(0, Fraction(1), 1, 3, 3000.0))
    assert mine == SendOrder(Order(0, 1, Fraction(2), Fraction(1), (), batch=2))
    assert other == SendOrder(Order(1, 1, Fraction(2), Fraction(1), ((3, 6),), batch=2))
    assert [node.state for node in schedule.nodes] == [WorkerState.TRAINING, WorkerState.TRAINING]


def test_a_worker_that_never_gets_samples_is_let_go_at_the_end() -> None:
    schedule = Agwu(Udpa(1, 2), Fraction(2))
    assert schedule.begin([None, None]) == [SendOrder(Order(0, 0, Fraction(1), Fraction(0), ((0, 1),), batch=1))]
    schedule.submitted(SubmissionReport(0, Fraction(1), 1, 1, 1.0))
    _, mine, other = schedule.submitted(SubmissionReport(0, Fraction(2), 1, 1, 1.0))
    assert isinstance(mine, SendOrder) and mine.order.stop
    assert other == SendOrder(Order(1, 0, weights=False, stop=True))
    assert schedule.done


def test_it_takes_over_when_the_others_have_died() -> None:
    schedule = Sgwu(Udpa(1, 2), Fraction(2))
    schedule.begin([None, None])
    assert schedule.lost(0) == [Lost((0,)), SendOrder(Order(1, 0, Fraction(1), Fraction(0), ((0, 1),), batch=1))]
    with pytest.raises(RunError, match="the last computing node has left; nobody can train the 1 samples"):
        schedule.lost(1)


def test_what_a_lost_worker_had_comes_with_the_next_orders_of_the_others() -> None:
    """Of 12 samples, 4 each, workers 0 and 2 get 2 more when worker 1 dies; it may be told twice."""
    schedule = Agwu(Udpa(12, 3), Fraction(3))
    schedule.begin([None] * 3)
    assert schedule.lost(1) == [Lost((1,))]
    assert schedule.lost(1) == []
    assert schedule.table.workers(WorkerState.LOST) == (1,)
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(1), 1, 4, 1.0))
    assert send == SendOrder(Order(0, 1, Fraction(2), Fraction(1), ((4, 6),), batch=1))
    *_, send = schedule.submitted(SubmissionReport(2, Fraction(1), 1, 4, 1.0))
    assert send == SendOrder(Order(2, 2, Fraction(2), Fraction(1), ((6, 8),), batch=1))
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(2), 1, 6, 1.0))
    assert send == SendOrder(Order(0, 3, Fraction(3), Fraction(2), batch=1))


def test_a_worker_that_has_done_all_its_passes_takes_nothing_over() -> None:
    """Nobody would train it; nor does one in its last pass. The second time the finished one has died, too."""
    for also_dead in (False, True):
        schedule = Agwu(Udpa(12, 3), Fraction(1))
        schedule.begin([None] * 3)
        schedule.submitted(SubmissionReport(0, Fraction(1), 1, 4, 1.0))
        if also_dead:
            assert schedule.lost(0) == []
        assert schedule.lost(2) == [Lost((2,), taken_over=False)]
        assert [node.pending for node in schedule.nodes] == [[], [], []]
        assert not schedule.done
        schedule.submitted(SubmissionReport(1, Fraction(1), 1, 4, 1.0))
        assert schedule.done


def test_progress_is_passes_by_samples() -> None:
    """Worker 0 has 10 of 30 samples, and worker 1 has 20; both are to make 4 passes."""
    schedule = Agwu(Idpa(30, 2, 1), Fraction(4))
    assert schedule.progress == 0
    schedule.begin([1.0, 2.0])
    schedule.submitted(SubmissionReport(1, Fraction(1), 1, 20, 1.0))
    assert schedule.progress == Fraction(20, 120)
    schedule.submitted(SubmissionReport(0, Fraction(1), 1, 10, 1.0))
    schedule.submitted(SubmissionReport(0, Fraction(2), 1, 10, 1.0))
    assert schedule.progress == Fraction(40, 120)
