"""A worker's iterations, times and noise."""

from __future__ import annotations

from fractions import Fraction
from statistics import fmean, stdev

import pytest

from bpt.parallel.cluster.cluster import Node
from bpt.parallel.outer.outer_instructions import Order
from bpt.parallel.outer.simulation.simulated_worker import SimulatedWorker


def worker(batch: int = 10, number: int = 0, **node: object) -> SimulatedWorker:
    return SimulatedWorker(number, Node(**{"name": "a", "speed": 10, **node}), batch, 1)  # type: ignore[arg-type]


def order(until: Fraction | int, samples: int = 0, passes: int = 0, iterations: int = 0) -> Order:
    runs = ((0, samples),) if samples else ()
    return Order(0, 0, Fraction(until), Fraction(passes), runs, iterations)


def test_batches_reach_over_the_end_of_a_pass() -> None:
    """25 samples in batches of 10: 3 iterations, then 2 for what is left of the second pass, and 3 again."""
    mine = worker()
    seen = []
    for until in (1, 2, 3):
        end = mine.start(order(until, 25 if until == 1 else 0), mine.now)
        report = mine.finish()
        seen.append((report.iterations, report.samples, report.passes, end))
    assert seen == [(3, 30, 1, 3), (2, 20, 2, 5), (3, 30, 3, 8)]
    assert (mine.trained, mine.busy, mine.samples) == (80, 8, 25)


def test_more_samples_belong_to_the_pass_that_has_begun() -> None:
    """10 of 20 samples are done twice when it gets 20 more, so 35 of the pass's 40 are left: 4 iterations."""
    mine = worker()
    mine.start(order(1, 15), 0)
    mine.finish()  # 2 iterations: 5 samples of the second pass are done
    mine.start(order(2, 25), 2)
    report = mine.finish()
    assert (report.iterations, report.passes) == (4, 2)


def test_a_part_of_a_pass() -> None:
    """Half of 25 samples: 12.5, so two batches."""
    mine = worker()
    mine.start(order(Fraction(1, 2), 25), 0)
    report = mine.finish()
    assert (report.iterations, report.passes) == (2, Fraction(1, 2))


def test_orders_of_single_iterations() -> None:
    mine = worker()
    reported = []
    mine.start(order(1, 25, iterations=2), 0)
    reported.append(mine.finish().passes)
    assert not mine.is_between_passes
    mine.start(order(1, iterations=2), 2)
    reported.append(mine.finish().passes)
    assert mine.is_between_passes
    assert reported == [Fraction(20, 25), 1]


def test_fewer_samples_than_a_batch() -> None:
    """4 samples in batches of 10: one iteration is two passes and a half, so the second order has nothing to do."""
    mine = worker()
    iterations = []
    for until in (1, 2, 3, 4, 5, 6):
        mine.start(order(until, 4 if until == 1 else 0), 0)
        iterations.append(mine.finish().iterations)
    assert iterations == [1, 0, 1, 0, 0, 1]


def test_no_samples_are_no_work() -> None:
    mine = worker()
    assert mine.start(order(1), 3) == 3
    report = mine.finish()
    assert (report.passes, report.samples, report.seconds, report.waited) == (1, 0, 0, 3)


def test_passes_before_its_first_samples_are_missed() -> None:
    mine = worker()
    mine.start(order(3, 20, passes=2), 7)
    report = mine.finish()
    assert (report.iterations, report.passes, report.waited) == (2, 3, 7)


def test_waiting_is_from_submission_to_order() -> None:
    mine = worker()
    mine.start(order(1, 10), 0.5)
    mine.finish()
    mine.start(order(2), 4)
    assert mine.finish().waited == 2.5
    assert mine.waiting == 3
    mine.stop(6)
    assert (mine.busy, mine.waiting, mine.stopped) == (2, 4, 6)


def test_death_in_the_middle() -> None:
    mine = worker()
    mine.start(order(1, 100), 1)
    mine.stop(4, died=True)
    assert (mine.busy, mine.waiting, mine.died, mine.is_active) == (3, 1, True, False)


@pytest.mark.parametrize(("now", "samples", "seconds"), [(0, 0, 0), (1.9, 0, 0), (3, 10, 2), (5, 20, 4), (10, 40, 8)])
def test_progress_is_of_whole_iterations(now: float, samples: int, seconds: float) -> None:
    """Two seconds an iteration. All of the order, if it is done but not yet submitted."""
    mine = worker(speed=5)
    mine.start(order(1, 40), 0)
    assert mine.progress(now) == (samples, pytest.approx(seconds))


def test_progress_with_a_change_of_speed() -> None:
    """Iterations of 1 s, of 2 s from the second on: at 6 s three are done, and a half."""
    mine = worker(changes=((1.0, 0.5),))
    mine.start(order(1, 40), 0)
    samples, seconds = mine.progress(6)
    assert samples == 30
    assert seconds == pytest.approx(6 * 3 / 3.5)  # as if they were alike


def test_noise_of_many_iterations_averages_out() -> None:
    def times(samples: int) -> list[float]:
        each = [worker(number=number, noise=0.2) for number in range(3000)]
        return [mine.start(order(1, samples), 0) for mine in each]

    for iterations in (1, 16):
        seconds = times(10 * iterations)
        assert fmean(seconds) == pytest.approx(iterations, rel=0.01)
        assert stdev(seconds) == pytest.approx(0.2 * iterations**0.5, rel=0.05)


def test_noise_never_makes_work_vanish() -> None:
    assert min(worker(number=number, noise=5).start(order(1, 10), 0) for number in range(100)) == 0.01


def test_the_same_order_draws_the_same_noise() -> None:
    """Whatever it has to do, so that schedules can be compared."""
    deviations = []
    for mine, samples in ((worker(noise=0.1), 40), (worker(noise=0.1), 160)):
        seconds = mine.start(order(1, samples), 0)
        deviations.append((seconds / (samples / 10) - 1) * (samples / 10) ** 0.5)
    assert deviations[0] == pytest.approx(deviations[1])
    assert worker(noise=0.1).start(order(1, 40), 0) == worker(noise=0.1).start(order(1, 40), 0)
    assert worker(number=1, noise=0.1).start(order(1, 40), 0) != worker(number=2, noise=0.1).start(order(1, 40), 0)


def test_it_gets_ready_once() -> None:
    """For 2 seconds, before the first of its 3 iterations; that is neither computing nor waiting."""
    mine = worker(warm_up=2)
    assert mine.start(order(1, 25), 1.0) == 6.0
    assert mine.progress(2.5) == (0, 0)
    assert mine.progress(4.5) == (10, 1)
    assert mine.finish().seconds == 3.0
    assert mine.start(order(2), 7.0) == 9.0
    assert (mine.warming, mine.busy, mine.waiting) == (2.0, 3.0, 2.0)


def test_it_may_die_before_it_is_ready() -> None:
    mine = worker(warm_up=2)
    mine.start(order(1, 25), 1.0)
    mine.stop(1.5, died=True)
    assert (mine.warming, mine.busy, mine.waiting) == (0.5, 0.0, 1.0)
