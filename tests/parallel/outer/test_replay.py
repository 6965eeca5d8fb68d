"""A replay yields what is logged, in that order, whoever is quick this time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest

from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.idpa import Udpa
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    CutShort,
    Lost,
    Merge,
    Order,
    OuterInstruction,
    SendOrder,
    Settled,
    SubmissionReport,
)
from bpt.parallel.outer.replay import Replay
from tests.parallel.outer.play import Play, random_schedule

EXCHANGES = ["SGWU", "AGWU", "ASGD"]


def recorded(exchange: str, seed: int) -> tuple[Play, int, Fraction]:
    """A run of unlike workers, some of which die, or that is stopped; the number of workers, and K'."""
    generator = random.Random(seed)
    workers = generator.randint(1, 5)
    schedule = random_schedule(exchange, generator.choice(["HARMONIC", "UDPA"]), generator, workers)
    speeds = [generator.uniform(1, 20) for _ in range(workers)]
    deaths, stops = {}, float("inf")
    if seed % 3 == 1:
        deaths = {worker: generator.uniform(0, 10) for worker in range(1, workers)}
    elif seed % 3 == 2:
        stops = generator.uniform(0, 15)
    return Play(schedule, speeds, deaths=deaths, stops=stops).run(), workers, schedule.total


def as_it_went(log: Iterable[OuterInstruction]) -> list[OuterInstruction]:
    """The log, where orders that were cut end where they were."""
    result: list[OuterInstruction] = []
    for instruction in log:
        if not isinstance(instruction, CutShort):
            result.append(instruction)
            continue
        at, order = next(
            (place, each.order) for place, each in reversed(list(enumerate(result)))
            if isinstance(each, SendOrder) and each.order.worker == instruction.worker
        )  # fmt: skip
        iterations = instruction.iterations if order.iterations else 0
        result[at] = SendOrder(replace(order, until=instruction.passes, iterations=iterations))
    return result


def again(log: Iterable[OuterInstruction], workers: int, total: Fraction, seed: int, **more: object) -> Play:
    """Replay with workers of other speeds."""
    generator = random.Random(seed)
    speeds = [generator.uniform(1, 20) for _ in range(workers)]
    return Play(Replay(log, workers, total), speeds, **more).run()  # type: ignore[arg-type]


def changes(log: Iterable[OuterInstruction]) -> list[OuterInstruction]:
    """What changes the global weights."""
    return [each for each in log if isinstance(each, Merge | AverageSubmitted | ApplyGradient)]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_replay_yields_what_is_logged(exchange: str) -> None:
    """... also of runs that were stopped or lost workers, who are told to stop when the log has no more for them."""
    for seed in range(60):
        play, workers, total = recorded(exchange, seed)
        expected = as_it_went(play.log)
        replayed = again(play.log, workers, total, seed + 1000).log
        assert replayed[: len(expected)] == expected
        stops = replayed[len(expected) :]
        dead = {worker for worker, player in enumerate(play.players) if player.dead}
        assert {each.order.worker for each in stops if isinstance(each, SendOrder) and each.order.stop} == dead
        assert len(stops) == len(dead)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_all_stop_wherever_the_log_ends(exchange: str) -> None:
    """As that of a run that was killed does. Nothing is made up: weights change as logged, as far as that goes."""
    for seed in range(6):
        play, workers, total = recorded(exchange, seed)
        for length in range(0, len(play.log), 1 + len(play.log) // 40):
            part = play.log[:length]
            assert changes(again(part, workers, total, seed).log) == changes(part)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_all_others_stop_when_a_worker_dies(exchange: str) -> None:
    """... before the first update that needs it, though it may have submitted what that takes."""
    for seed in range(60):
        play, workers, total = recorded(exchange, seed)
        deaths = {0: random.Random(seed).uniform(0, 10)}
        replay = again(play.log, workers, total, seed + 2000, deaths=deaths)
        made = changes(replay.log)
        assert made == changes(play.log)[: len(made)]


def test_what_the_dead_had_submitted_is_not_used() -> None:
    """Worker 1 submits before its turn, and dies. After the update of worker 0, it would be its turn."""
    first = [SendOrder(Order(worker, 0, Fraction(1), runs=((worker, worker + 1),))) for worker in (0, 1)]
    log = Agwu(Udpa(2, 2), Fraction(1))
    log.begin([None] * 2)
    rest = [*log.submitted(SubmissionReport(0, Fraction(1))), *log.submitted(SubmissionReport(1, Fraction(1)))]
    replay = Replay([*first, *rest], 2, Fraction(1))
    assert replay.begin([]) == first
    assert replay.submitted(SubmissionReport(1, Fraction(1))) == []
    assert replay.lost(1) == []
    assert replay.submitted(SubmissionReport(0, Fraction(1))) == rest[:2]
    assert replay.done


def test_each_as_soon_as_what_it_needs_is_there() -> None:
    """Logged was the order 0, 1; now worker 1 is quicker."""
    schedule = Agwu(Udpa(2, 2), Fraction(1))
    first = schedule.begin([None] * 2)
    rest = [
        *schedule.submitted(SubmissionReport(0, Fraction(1))),
        *schedule.submitted(SubmissionReport(1, Fraction(1))),
    ]
    replay = Replay([Settled(0, 1, 1), *first, *rest], 2, Fraction(1))
    assert replay.begin([1.0, 2.0]) == first
    replay.progressed(0, 5, 5.0)
    assert replay.submitted(SubmissionReport(1, Fraction(1), accuracy=0.5)) == []  # what it reports does not count
    assert not replay.done
    assert replay.submitted(SubmissionReport(0, Fraction(1), accuracy=0.5)) == rest
    assert replay.done


def test_an_order_waits_for_the_worker_that_it_is_for() -> None:
    """Under ASGD a worker whose pass has ended within the iteration before gets one without an update."""
    schedule = Asgd(Udpa(2, 2), Fraction(3))
    first = schedule.begin([None] * 2)
    steps = [
        schedule.submitted(SubmissionReport(0, Fraction(passes), iterations)) for passes, iterations in ((1, 1), (2, 0))
    ]
    assert [len(step) for step in steps] == [2, 1]
    replay = Replay([*first, *steps[0], *steps[1]], 2, Fraction(3))
    assert replay.begin([]) == first
    assert replay.submitted(SubmissionReport(0, Fraction(1), 1)) == steps[0]
    assert replay.submitted(SubmissionReport(0, Fraction(2), 0)) == steps[1]


def test_a_replay_can_be_stopped() -> None:
    """Worker 0 waits for its turn meanwhile."""
    schedule = Agwu(Udpa(2, 2), Fraction(2))
    log = schedule.begin([None] * 2)
    for worker, passes in ((1, 1), (0, 1), (1, 2), (0, 2)):
        log += schedule.submitted(SubmissionReport(worker, Fraction(passes)))
    replay = Replay(log, 2, Fraction(2))
    replay.begin([])
    assert replay.submitted(SubmissionReport(0, Fraction(1))) == []
    replay.stop()
    stops = replay.submitted(SubmissionReport(1, Fraction(1, 2)))
    assert stops == [SendOrder(Order(worker, 0, weights=False, stop=True)) for worker in (0, 1)]
    assert replay.done


def test_progress_is_passes_by_samples() -> None:
    """Worker 0 has 10 samples and worker 1 has 30; a pass of either is an eighth, and three eighths, of two."""
    first = [
        SendOrder(Order(0, 0, Fraction(1), runs=((0, 10),))), SendOrder(Order(1, 0, Fraction(1), runs=((10, 40),)))
    ]  # fmt: skip
    replay = Replay([*first, Lost((2,))], 3, Fraction(2))
    assert replay.progress == 0
    replay.begin([])
    replay.submitted(SubmissionReport(1, Fraction(1)))
    assert replay.progress == Fraction(3, 8)
    replay.submitted(SubmissionReport(0, Fraction(1, 2)))
    assert replay.progress == Fraction(7, 16)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_whether_the_log_tells_how_its_run_ended(exchange: str) -> None:
    """All of it: done, though workers died, or stopped. Without its last order to stop it is cut off."""
    for seed in range(60):
        play, workers, total = recorded(exchange, seed)
        whole = Replay(play.log, workers, total)
        ended = [player.passes for player in play.players if not player.dead]
        assert (whole.short, whole.stopped) == (False, any(0 < passes < total for passes in ended))
        last = max(at for at, each in enumerate(play.log) if isinstance(each, SendOrder) and each.order.stop)
        cut = Replay(play.log[:last], workers, total)
        assert (cut.short, cut.stopped, cut.decisions) == (True, False, last)
