"""Heavy layers alone, light ones joined."""

from __future__ import annotations

import random

import pytest

from bpt.base.errors import PrototxtError
from bpt.parallel.pipeline.placement.partition import partitions
from bpt.parallel.pipeline.placement.problem import Device
from tests.parallel.pipeline.placement.problems import chain, random_problem

ONE, TWO = (Device("a"),), (Device("a"), Device("b"))


def test_by_rule() -> None:
    # 64 in all: over one device, more than 64 / 16 = 4 is heavy.
    problem = chain([20, 1, 1, 2, 1, 20, 4, 15], ONE)
    assert partitions(problem) == (0, 1, 4, 5, 6, 7)


def test_at_least_one_a_device() -> None:
    problem = chain([1, 1, 1, 1], [Device(str(i)) for i in range(4)])
    assert partitions(problem) == (0, 1, 2, 3)


def test_a_number_of_them() -> None:
    problem = chain([5, 1, 1, 1, 5, 2, 2], TWO)
    assert partitions(problem, 3) == (0, 3, 5)  # 7 6 4: no cut in three has less than 7 as its most
    assert partitions(problem, 4) == (0, 1, 4, 5)  # 5 3 5 4
    assert partitions(problem, 7) == (0, 1, 2, 3, 4, 5, 6)


def test_what_stays_together_is_not_cut() -> None:
    problem = chain([20, 1, 1, 2, 1, 20, 4, 15], ONE, together=((4, 6), (5, 7)))
    assert partitions(problem) == (0, 1, 4, 7)
    with pytest.raises(PrototxtError, match=r"partitions: 7: .*from 1 to 6"):
        partitions(problem, 7)


def test_every_number_is_met() -> None:
    rng = random.Random(0)
    for seed in range(40):
        problem = random_problem(seed, rng.randrange(4, 30), 3)
        count = rng.randrange(3, len(problem.cuts) + 1) if len(problem.cuts) > 3 else 3
        starts = partitions(problem, count)
        assert len(starts) == count
        assert set(starts) <= set(problem.cuts)


def test_errors() -> None:
    with pytest.raises(PrototxtError, match=r"into 1 stage at most.*are to be 2; set num_stages: 1 or less"):
        partitions(chain([1, 1], TWO, together=((0, 2),)))
    with pytest.raises(PrototxtError, match=r"partitions: 1: .*from 2 to 3"):
        partitions(chain([1, 1, 1], TWO), 1)


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (["together"], r'because layers that share parameters, .* stay together \("l0" to "l1"\), but'),
        (["beside_sources"], r'because data layers stay with the first layer that computes \("l0", "l1"\), but'),
        (["blocks"], r'because layers of a block stay together \("l0" to "l1"\), but'),
        (["together", "beside_sources"], r'"l1"\) and data layers stay with .* \("l0", "l1"\), but'),
    ],
)
def test_the_reason_is_the_true_one(kept: list[str], reason: str) -> None:
    with pytest.raises(PrototxtError, match=reason):
        partitions(chain([1, 1], TWO, **dict.fromkeys(kept, ((0, 2),))))


def test_too_few_layers() -> None:
    with pytest.raises(PrototxtError, match=r"at most, because it has 1 layer, but there are to be 2;"):
        partitions(chain([1], TWO))
