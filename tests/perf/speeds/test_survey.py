"""The survey with ranks whose times are formulas; a second passes only on paper."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.parallel.balance.profile import RankSpeed
from bpt.perf.speeds.survey import SurveyLimits, measure_speed
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks

ENGINE = pb.SolverParameter.CONTIGUOUS
GIB = 2**30


class Formula:
    """Takes ``seconds(size)`` for an iteration, and a MiB a sample of memory."""

    blob_bytes = (2**18, 2**20)

    def __init__(self, seconds: Callable[[int], float], memory: int = 2**40) -> None:
        self._seconds = seconds
        self._memory = memory
        self.sizes: list[int] = []  # in the order in which they were asked for
        self.layouts: list[MemoryFormatChoice] = []
        self.iterations = 0

    def resize(self, samples: int) -> None:
        self.sizes.append(samples)
        assert self.peak <= self._memory, f"{samples} samples do not fit"

    def settle(self, choice: MemoryFormatChoice) -> None:
        self.layouts.append(choice)
        while not choice.settled:
            choice.record(1.0)

    def run(self) -> float:
        self.iterations += 1
        return self._seconds(self.sizes[-1]) if self.sizes[-1] else 0.0

    @property
    def peak(self) -> int:
        return (100 + self.sizes[-1]) * 2**20 if self.sizes else 0

    @property
    def room(self) -> int:
        return self._memory - self.peak


def survey(works: list[Formula], batch: int, engine: int = ENGINE) -> list[RankSpeed]:
    def rank(comm: Communicator) -> RankSpeed:
        return measure_speed(works[comm.rank], engine, batch, comm)

    return run_ranks(len(works), rank)


def test_a_rank_alone_measures_up_to_the_batch() -> None:
    work = Formula(lambda size: 0.01 + 0.001 * size)
    result = measure_speed(work, ENGINE, 20, SerialCommunicator())
    assert work.sizes == [1, 2, 3, 5, 10, 20]
    assert {size: point.seconds for size, point in result.points.items()} == pytest.approx(
        {size: 0.01 + 0.001 * size for size in work.sizes}
    )
    assert all(point.half_width < 1e-12 for point in result.points.values())
    assert [point.repeats for point in result.points.values()] == [4, 4, 4, 4, 4, 8]


def test_ranks_measure_what_they_may_get_and_then_their_division() -> None:
    """1 ms a sample against 4 ms: with its even share, 32, the slow one takes 128 ms, so the fast one may get all."""
    works = [Formula(lambda size: 0.001 * size), Formula(lambda size: 0.004 * size)]
    results = survey(works, 64)
    even = [1, 2, 4, 8, 16, 32]
    assert works[0].sizes == [*even, 64, 51]
    assert works[1].sizes == [*even, 32, 13]  # it repeats its largest, so that the other is disturbed
    assert list(results[0].points) == [*even, 51, 64]
    assert list(results[1].points) == [1, 2, 4, 8, 13, 16, 32]


def test_sizes_that_are_too_slow_are_left_out() -> None:
    """With its even share, 64, the slow one takes 160 ms. The fast one takes 128 ms for 64, 256 ms for 128: enough.

    76 and 3 · 60 samples take 152 and 150 ms; with 75, one of the others would have 61 and take 152.5 ms.
    """
    works = [Formula(lambda size: 0.002 * size), *(Formula(lambda size: 0.0025 * size) for _ in range(3))]
    survey(works, 256)
    assert works[0].sizes == [1, 2, 4, 8, 16, 32, 64, 128, 76]
    assert works[3].sizes == [1, 2, 4, 8, 16, 32, 64, 64, 60]


def test_a_rank_that_was_too_slow_once_does_not_go_on() -> None:
    """Repeating its even share it happens to be faster than it was, and than the slowest is."""
    works = [Formula(lambda size: 0.001 * size)]
    works.append(Formula(lambda size: 0.004 * size / (1 + works[1].sizes.count(32))))
    survey(works, 64)
    assert works[1].sizes[:7] == [1, 2, 4, 8, 16, 32, 32]
    assert 64 not in works[1].sizes


def test_a_division_is_corrected_until_it_is_as_predicted() -> None:
    """The fast rank has a step that doubling does not see: 10 ms more from 90 samples on."""
    works = [Formula(lambda size: 0.001 * size + 0.01 * (size >= 90)), Formula(lambda size: 0.003 * size)]
    results = survey(works, 128)
    times = [0.001 * share + 0.01 * (share >= 90) for share in works[0].sizes[-2:]]
    assert works[0].sizes[:8] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert len(works[0].sizes) == 10  # two corrections
    assert works[0].sizes[-1] + works[1].sizes[-1] == 128
    assert abs(times[-1] - 0.003 * works[1].sizes[-1]) < 0.003  # one sample of the slow one
    assert results[0].points.keys() >= set(works[0].sizes)


def test_a_rank_that_is_too_slow_for_one_sample_gets_none() -> None:
    works = [Formula(lambda size: 0.001 * size), Formula(lambda size: 1.0 * size)]
    survey(works, 8)
    assert works[1].sizes == [1, 2, 4, 4, 0]
    assert works[0].sizes == [1, 2, 4, 8, 8]


def test_no_size_is_tried_that_may_not_fit() -> None:
    """200 MiB: 100 and one a sample. Of what is free 80 % are counted on."""
    works = [Formula(lambda size: 0.001 * size, memory=200 * 2**20), Formula(lambda size: 0.002 * size)]
    results = survey(works, 256)
    assert works[0].sizes[:8] == [1, 2, 4, 8, 16, 32, 64, 64]  # 128 would not fit
    assert max(works[0].sizes) == 92  # 64 + 0.8 · 36
    assert results[0].cap == 98  # 92 + 0.8 · 8
    assert results[1].cap > 10**5


def test_a_batch_that_fits_nowhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    works = [Formula(lambda size: 0.001 * size, memory=150 * 2**20) for _ in range(2)]
    with caplog.at_level(logging.INFO, logger="bpt"):
        results = survey(works, 256)
    assert [max(work.sizes) for work in works] == [32, 32]
    assert [result.cap for result in results] == [46, 46]  # 32 + 0.8 · 18
    assert "a batch of 256 samples does not fit into memory: rank 0: 46, rank 1: 46" in caplog.text


def test_one_sample_is_tried_whatever_the_guess() -> None:
    work = Formula(lambda size: 0.001, memory=102 * 2**20)
    assert measure_speed(work, ENGINE, 8, SerialCommunicator()).cap < 4


def test_what_never_settles_ends_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    generator = random.Random(0)
    noisy = Formula(lambda size: generator.uniform(0.3, 0.9))
    with caplog.at_level(logging.INFO, logger="bpt"):
        measure_speed(noisy, ENGINE, 1, SerialCommunicator(), SurveyLimits(precision=0.001))
    assert noisy.iterations < 50
    assert "rank 0: after 7" in caplog.text  # 7 s, 8 runs, and what a round takes
    assert "s the time of 1 samples is known only to ± " in caplog.text


def test_sizes_that_lead_the_way_are_measured_roughly() -> None:
    """Never precise enough: 10 s for the even share, a tenth of that for those before."""
    generator = random.Random(0)
    spent = {1: 0.0, 2: 0.0, 4: 0.0}

    def seconds(size: int) -> float:
        spent[size] += (time := generator.uniform(0.1, 0.3))
        return time

    measure_speed(Formula(seconds), ENGINE, 4, SerialCommunicator(), SurveyLimits(precision=0.001, whole=99))
    assert [1.0 < time < 2.5 for time in (spent[1], spent[2])] == [True, True]
    assert 10 < spent[4] < 15


def test_an_uneven_machine_does_not_hold_up_a_small_net() -> None:
    """5 ms an iteration, on ranks that are never known well: 8 sizes, and no time of them is well known."""
    generators = [random.Random(rank) for rank in range(2)]
    spent = [0.0, 0.0]

    def seconds(rank: int) -> float:
        generator = generators[rank]
        spent[rank] += (time := generator.uniform(0.001, 0.009) * (10 if generator.random() < 0.05 else 1))
        return time

    survey([Formula(lambda size: seconds(0)), Formula(lambda size: seconds(1))], 64)
    assert all(6 < time < 15 for time in spent)


def test_of_two_measurements_of_a_size_the_better_known_counts() -> None:
    """The slow rank repeats its even share, 32, while the fast one goes on, and is disturbed."""
    generator = random.Random(0)
    works = [Formula(lambda size: 0.001 * size)]
    works.append(Formula(lambda size: 0.004 * size * (generator.uniform(1, 2) if works[1].sizes.count(32) > 1 else 1)))
    assert survey(works, 64)[1].points[32].seconds == pytest.approx(0.128)


def test_what_takes_long_is_repeated_three_times() -> None:
    slow = Formula(lambda size: 20.0)
    result = measure_speed(slow, ENGINE, 1, SerialCommunicator())
    assert slow.iterations == 2 + 3
    assert result.points[1].repeats == 3


def test_a_single_outlier_does_not_count() -> None:
    times = iter([0.1] * 20 + [5.0] + [0.1] * 100)
    work = Formula(lambda size: next(times))
    result = measure_speed(work, ENGINE, 1, SerialCommunicator())
    assert result.points[1].seconds == pytest.approx(0.1)


def test_ranks_stay_busy_until_the_last_is_done() -> None:
    """A precise rank goes on while the other needs more rounds, and rounds last as long on either."""
    generator = random.Random(1)
    works = [Formula(lambda size: 0.01), Formula(lambda size: generator.uniform(0.8, 1.2))]
    results = survey(works, 2)
    seconds = [result.points[1].repeats * length for result, length in zip(results, (0.2, 1.0), strict=True)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1 / 3)
    assert seconds[0] >= 5


def test_the_layout_is_chosen_at_small_sizes_and_kept() -> None:
    work = Formula(lambda size: 0.001 * size)
    measure_speed(work, pb.SolverParameter.AUTO, 8, SerialCommunicator())
    assert len({id(choice) for choice in work.layouts}) == 4
    slow = Formula(lambda size: 0.1 * size)
    measure_speed(slow, pb.SolverParameter.AUTO, 8, SerialCommunicator())
    # 2 samples take 0.2 s: from there on it is kept.
    assert [slow.layouts.index(choice) for choice in slow.layouts] == [0, 1, 1, 1]
