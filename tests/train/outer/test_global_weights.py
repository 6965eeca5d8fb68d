"""Eq. 7 and 10 of BPT-CNN on arrays, worked by hand; and that no version is written to."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.parallel.outer.outer_instructions import ApplyGradient, AverageSubmitted, Merge
from bpt.parallel.outer.outer_step import OuterStep
from bpt.parallel.outer.staleness import Correction
from bpt.parallel.outer.update_factors import AgwuUpdate
from bpt.train.outer.global_weights import GlobalWeights

Array = NDArray[np.float32]


def array(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def held(trained: int = 2, workers: int = 2) -> GlobalWeights:
    """Version 0 is (1, 2, 10): the last is a statistic. All workers train from it."""
    weights = GlobalWeights(array(1, 2, 10), trained)
    for worker in range(workers):
        weights.fetch(worker)
    return weights


def merge(gamma: float, accuracy: float = 1.0, worker: int = 0, base: int = 0, newest: int = 0) -> Merge:
    return Merge(AgwuUpdate(worker, base, newest, gamma, accuracy))


def same(found: Array, expected: Sequence[float]) -> None:
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, array(*expected))


def test_fetch() -> None:
    weights = held()
    same(weights.fetch(0), (1, 2, 10))
    assert weights.fetch(1) is weights.newest  # workers share the memory of a version


def test_eq_10_by_hand() -> None:
    """Worker 0 moved by (4, -8); γ Q = 0.5 · 0.5, so W moves by (1, -2). The statistic goes a quarter of its way."""
    weights = held()
    weights.submit(0, array(5, -6, 30))
    weights.merge(merge(0.5, 0.5))
    same(weights.newest, (2, 0, 15))


def test_two_workers_from_one_base() -> None:
    """The second one's change is added to what the first has made of W, though it began from version 0.

    Its statistic, 50, is mixed with the newest one, not with that of its base.
    """
    weights = held()
    weights.submit(0, array(3, 2, 30))
    weights.merge(merge(0.5))
    same(weights.newest, (2, 2, 20))
    weights.submit(1, array(1, 6, 50))
    weights.merge(merge(0.5, 0.5, worker=1, newest=1))
    same(weights.newest, (2, 3, 27.5))


def test_the_base_is_what_was_fetched_last() -> None:
    weights = held()
    weights.submit(0, array(3, 2, 10))
    weights.merge(merge(0.5))
    same(weights.fetch(0), (2, 2, 10))
    weights.submit(0, array(4, 2, 10))
    weights.merge(merge(0.5, base=1, newest=1))
    same(weights.newest, (3, 2, 10))


def test_statistics_are_mixed_by_1_at_most() -> None:
    """γ = 2: twice the change of the weights, while a variance of 0.5 instead of 10 must not become negative."""
    weights = held()
    weights.submit(0, array(2, 1, 0.5))
    weights.merge(merge(2.0))
    same(weights.newest, (3, 0, 0.5))


@pytest.mark.parametrize("trained", [0, 3])
def test_only_statistics_or_none(trained: int) -> None:
    weights = held(trained)
    weights.submit(0, array(3, 4, 12))
    weights.merge(merge(2.0))
    same(weights.newest, (5, 6, 14) if trained else (3, 4, 12))


def test_a_replacement_is_exact() -> None:
    """1 + (1e-8 - 1) is not 1e-8 in float32."""
    weights = held()
    local = array(1e-8, 1 / 3, 0.1)
    weights.submit(0, local)
    weights.merge(merge(1.0))
    same(weights.newest, local.tolist())


def test_factor_1_adds_if_the_base_is_older() -> None:
    weights = held()
    weights.submit(0, array(3, 2, 10))
    weights.merge(merge(0.5))  # to 2, 2, 10
    weights.submit(1, array(1, 5, 10))
    weights.merge(merge(1.0, worker=1, newest=1))
    same(weights.newest, (2, 5, 10))


def test_what_counts_nothing_changes_nothing() -> None:
    """Not even NaN, of a worker that diverged; its next order brings it sound weights."""
    weights = held()
    weights.submit(0, array(np.nan, np.inf, np.nan))
    weights.merge(merge(0.5, 0.0))
    same(weights.fetch(0), (1, 2, 10))
    weights.submit(0, array(np.nan, 2, 10))
    weights.submit(1, array(3, 4, 5))
    weights.average(AverageSubmitted((0, 1), (0.0, 1.0), 2))
    same(weights.newest, (3, 4, 5))


def test_eq_7_by_hand() -> None:
    """Q = 0.5, 0.25, 0.25: halves and quarters, statistics as well."""
    weights = held(workers=3)
    for worker, local in enumerate([(2, 4, 8), (4, 0, 4), (8, 4, 0)]):
        weights.submit(worker, array(*local))
    weights.average(AverageSubmitted((0, 1, 2), (0.5, 0.25, 0.25), 1))
    same(weights.newest, (4, 3, 5))


def test_a_mean_of_some_workers() -> None:
    """What the third has submitted is kept."""
    weights = held(workers=3)
    for worker, local in enumerate([(2, 4, 8), (4, 0, 4), (8, 4, 0)]):
        weights.submit(worker, array(*local))
    weights.average(AverageSubmitted((0, 2), (0.5, 0.5), 1))
    same(weights.newest, (5, 4, 4))
    same(weights.pop_submission(1), (4, 0, 4))


def test_a_worker_that_is_alone_is_not_rounded() -> None:
    weights = held()
    weights.submit(1, array(0.1, 1 / 3, 1e-30))
    weights.average(AverageSubmitted((1,), (1.0,), 1))
    same(weights.newest, array(0.1, 1 / 3, 1e-30).tolist())


def test_no_version_is_written_to() -> None:
    """Workers train from it, and messages carry it."""
    weights = held()
    versions, copies = [weights.newest], [weights.newest.copy()]
    for worker, step in ((0, merge(0.5)), (1, merge(1.5, 0.9, 1, 0, 1)), (0, merge(0.7, base=1, newest=2))):
        weights.submit(worker, array(3, 7, 11))
        weights.merge(step)
        versions.append(weights.fetch(worker))
        copies.append(versions[-1].copy())
    for worker in (0, 1):
        weights.submit(worker, array(worker, 7, 11))
    weights.average(AverageSubmitted((0, 1), (0.25, 0.75), 4))
    for version, copy in zip(versions, copies, strict=True):
        np.testing.assert_array_equal(version, copy)


def test_submissions_are_taken_once() -> None:
    weights = held()
    weights.submit(0, array(1, 1, 1))
    same(weights.pop_submission(0), (1, 1, 1))
    with pytest.raises(KeyError):
        weights.pop_submission(0)


def test_a_worker_that_is_gone_is_forgotten() -> None:
    weights = held()
    weights.submit(0, array(1, 1, 1))
    weights.forget(0)
    weights.forget(5)
    with pytest.raises(KeyError):
        weights.pop_submission(0)
    weights.submit(1, array(5, 2, 10))
    weights.merge(merge(0.5, worker=1))
    same(weights.newest, (3, 2, 10))


def test_compensation_by_hand() -> None:
    """W has moved by (2, -4) since; the gradient (-4, 8), for a rate of 1, becomes g + 0.25 · g² · (2, -4).

    So the worker's change (4, -8) becomes (-4, 56); a half of it counts. The statistic is mixed as ever.
    """
    weights = held()
    weights.submit(0, array(5, -6, 10))
    weights.merge(merge(0.5))  # to 3, -2, 10
    weights.submit(1, array(5, -6, 30))
    step = merge(0.5, worker=1, newest=1)
    weights.merge(Merge(step.update, Correction(0.25)))
    same(weights.newest, (3 - 2, -2 + 28, 20))


def test_a_compensated_gradient_by_hand() -> None:
    weights = held()
    weights.newest = array(2, 1, 10)
    weights.submit(0, array(3, -2, 7))
    same(weights.gradient(ApplyGradient(merge(1.0).update, Fraction(0), Correction(0.5))), (3 + 4.5, -2 - 2, 7))


def test_a_table_by_hand() -> None:
    """The second update is the mean of both workers' changes, each by its factor when it came, and its weight."""
    weights = held()
    weights.submit(0, array(5, -6, 10))
    weights.merge(Merge(merge(0.5).update, Correction(table=((0, 1.0),))))
    same(weights.newest, (3, -2, 10))
    weights.submit(1, array(1, 6, 10))
    weights.merge(Merge(merge(1.0, worker=1, newest=1).update, Correction(table=((0, 0.5), (1, 0.25)))))
    same(weights.newest, (3 + 0.5 * 2, -2 + 0.5 * -4 + 0.25 * 4, 10))
    resumed = held()
    resumed.remember(weights.memory())
    for each in (weights, resumed):
        each.submit(0, array(2, 1, 0))
        table = Correction(table=((0, 1.0), (1, 1.0)))
        same(each.gradient(ApplyGradient(merge(1.0).update, Fraction(0), table)), (2, 5, 0))


def test_an_outer_step_by_hand() -> None:
    """Changes of (2, -4) with momentum 0.5: the momentum is the change, then 1.5 times as much; lr 2."""
    weights, step = held(), OuterStep(2.0, 0.5)
    weights.submit(0, array(5, -6, 30))
    weights.merge(Merge(merge(0.5).update, step=step))
    same(weights.newest, (1 + 2 * 3, 2 - 2 * 6, 20))
    for worker in (0, 1):
        weights.submit(worker, array(9, -14, worker))
    weights.average(AverageSubmitted((0, 1), (0.5, 0.5), 2, step))
    same(weights.newest, (7 + 2 * 3.5, -10 - 2 * 7, 0.5))


def test_parts_are_stepped_and_corrected_alike() -> None:
    generator = np.random.default_rng(3)
    start, *submitted = (generator.standard_normal(9).astype(np.float32) for _ in range(5))
    spans = slice(0, 4), slice(4, 9)
    servers = [(slice(0, 9), GlobalWeights(start, 7))]
    servers += [(span, GlobalWeights(start[span], trained)) for span, trained in zip(spans, (4, 3), strict=True)]
    for span, server in servers:
        for number, local in enumerate(submitted):
            worker = number % 2
            server.fetch(worker)
            server.submit(worker, local[span].copy())
            table = ((0, 0.5), (1, 0.5))[: 1 + number]
            server.merge(Merge(merge(0.8, worker=worker).update, Correction(0.1, table), OuterStep(0.7, 0.9)))
    (_, whole), *parts = servers
    np.testing.assert_array_equal(np.concatenate([part.newest for _, part in parts]), whole.newest)
    assert all(part.memory().keys() == whole.memory().keys() for _, part in parts)
