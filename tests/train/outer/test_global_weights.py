"""Eq. 7 and 10 of BPT-CNN on arrays, worked by hand; and that no version is written to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.parallel.outer.outer_instructions import AverageSubmitted, Merge
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
