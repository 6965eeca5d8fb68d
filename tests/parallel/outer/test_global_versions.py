from __future__ import annotations

import math
from random import Random

import pytest

from bpt.parallel.outer.global_versions import Versions
from bpt.parallel.outer.update_factors import AgwuUpdate, Normalizer
from tests.support.paper import attenuation


def test_three_workers_by_hand() -> None:
    """The third is slow."""
    versions = Versions(3)
    assert versions.submit(0, 0.5) == AgwuUpdate(0, base=0, newest=0, gamma=1 / 2, accuracy=0.5)
    assert (versions.newest, versions.base(0), versions.base(1)) == (1, 1, 0)
    assert [versions.staleness(worker) for worker in versions.workers] == [0, 1, 1]
    # i - 1 = 1, k = 0, k' = 1 and 0: 1 / (e + 1)
    second = versions.submit(1, 0.8)
    assert second.gamma == pytest.approx(1 / (math.e + 1))
    assert (second.version, second.staleness) == (2, 1)
    # i - 1 = 2, k = 1, k' = 2 and 0: e^0.5 / (e + 1) = 1.648721 / 3.718282
    third = versions.submit(0, 1.0)
    assert third.factor == pytest.approx(0.443409, abs=1e-6)
    # i - 1 = 3, k = 0, k' = 3 and 2: 1 / (e + e^(2/3)) = 1 / (2.718282 + 1.947734)
    last = versions.submit(2, 0.5)
    assert last.gamma == pytest.approx(0.214315, abs=1e-6)
    assert (last.base, last.staleness, versions.newest) == (0, 3, 4)


@pytest.mark.parametrize("normalizer", Normalizer)
def test_one_worker_trains_as_if_alone(normalizer: Normalizer) -> None:
    """γ = 1 exactly, in every version."""
    versions = Versions(1, normalizer=normalizer)
    updates = [versions.submit(0, 1.0) for _ in range(5)]
    assert updates == [AgwuUpdate(0, base=i, newest=i, gamma=1.0, accuracy=1.0) for i in range(5)]
    assert all(update.replaces for update in updates)


def test_who_has_left_does_not_count() -> None:
    versions = Versions(3)
    versions.submit(0, 1.0)
    versions.leave(2)
    assert versions.workers == (0, 1)
    assert versions.submit(1, 1.0).gamma == pytest.approx(1 / math.e)  # k = 0 and k' = 1 of 1
    versions.leave(0)
    assert versions.submit(1, 1.0).gamma == 1.0


def test_who_has_finished_counts_for_those_that_trained_beside_it() -> None:
    """Three end together, all from version 0: the factors do not rise as the first ones go."""
    versions = Versions(3)
    versions.submit(0, 1.0)
    versions.retire(0)
    assert versions.workers == (1, 2)
    assert versions.submit(1, 1.0).gamma == pytest.approx(1 / (math.e + 1))  # of 1: k = 0, k' = 1 and 0
    # Version 2, of which the second begins anew; the third has not, so the first still counts: k = 2, k' = 1 and 0 of 2
    assert versions.submit(1, 1.0).gamma == pytest.approx(math.e / (math.exp(0.5) + 1))
    assert versions.submit(2, 1.0).staleness == 3
    assert versions.submit(1, 1.0).gamma == pytest.approx(math.exp(-1 / 4))  # k = 3 and k' = 4 of 4: two are left
    versions.retire(2)
    versions.submit(1, 1.0)
    assert versions.submit(1, 1.0).gamma == 1.0


def test_fetch() -> None:
    """The weights that it then trains from are newer, without an update."""
    versions = Versions(2)
    versions.submit(0, 1.0)
    assert versions.fetch(1) == 1
    assert (versions.newest, versions.base(1), versions.staleness(1)) == (1, 1, 0)
    assert versions.submit(1, 1.0).gamma == 1.0  # k = k' = 1: e / e


@pytest.mark.parametrize("normalizer", Normalizer)
@pytest.mark.parametrize("workers", [2, 3, 40])
def test_against_the_sum_of_eq_9(workers: int, normalizer: Normalizer) -> None:
    """... over thousands of updates, some of them by workers that are very slow."""
    random = Random(workers)
    versions = Versions(workers, normalizer=normalizer)
    for number in range(2000 // workers + 200):
        worker = min(random.randrange(workers), random.randrange(workers))
        if number == 100 and workers > 3:
            versions.leave(workers - 1)
        others = [versions.base(other) for other in versions.workers if other != worker]
        expected = attenuation(versions.base(worker), versions.newest, others, normalizer)
        if worker in versions.workers:
            assert versions.submit(worker, 0.5).gamma == pytest.approx(expected, rel=1e-14)


def test_the_bound_by_hand() -> None:
    """Three workers, at most 2 stale: the least bound there is. They have to take turns.

    If the first submitted twice, making versions 1 and 2, the others would make 3 and 4, the last of them stale by 3.
    """
    versions = Versions(3, max_staleness=2)
    assert [versions.may_submit(worker) for worker in range(3)] == [True] * 3
    versions.submit(0, 1.0)
    assert [versions.may_submit(worker) for worker in range(3)] == [False, True, True]
    with pytest.raises(AssertionError, match="worker 0 has to wait"):
        versions.submit(0, 1.0)
    versions.submit(1, 1.0)
    assert [versions.may_submit(worker) for worker in range(3)] == [False, False, True]
    assert versions.submit(2, 1.0).staleness == 2
    # Bases 1, 2 and 3 of 3. Before another makes version 4, the first has to: from 1, it is 2 stale now.
    assert [versions.may_submit(worker) for worker in range(3)] == [True, False, False]
    assert versions.submit(0, 1.0).staleness == 2


def test_a_wider_bound_lets_the_quick_one_run_ahead() -> None:
    """One slow worker, bound 5: the quick one makes 5 versions, then waits; it goes on if the slow one leaves."""
    versions = Versions(2, max_staleness=5)
    made = 0
    while versions.may_submit(0):
        versions.submit(0, 1.0)
        made += 1
    assert made == 5
    assert versions.may_submit(1)
    versions.leave(1)
    assert versions.may_submit(0)


def test_unbounded() -> None:
    """A worker ten times as slow as the rest, or one that never comes, stops nobody."""
    versions = Versions(2)
    for _ in range(100):
        assert versions.may_submit(0)
        versions.submit(0, 1.0)
    assert versions.submit(1, 1.0).staleness == 100


@pytest.mark.parametrize("seed", range(100))
def test_within_the_bound_there_is_always_one_that_can_go_on(seed: int) -> None:
    """The one with the oldest base. And no update is staler than the bound, whatever the order."""
    random = Random(seed)
    workers = random.randint(1, 8)
    bound = max(1, workers - 1) + random.choice([0, 0, 1, 5])
    versions = Versions(workers, max_staleness=bound)
    stalest = 0
    for _ in range(100):
        oldest = min(versions.workers, key=versions.base)
        assert versions.may_submit(oldest)
        event = random.random()
        if event < 0.01 and len(versions.workers) > 1:
            versions.leave(random.choice(versions.workers))
            continue
        worker = random.choice(versions.workers)
        if event < 0.05:
            versions.fetch(worker)
        elif versions.may_submit(worker):
            stalest = max(stalest, versions.submit(worker, 1.0).staleness)
    assert stalest <= bound


def test_a_bound_for_one_worker() -> None:
    assert Versions(1, max_staleness=1).may_submit(0)
