"""Outer steps by hand, and when they use momentum."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from bpt.config.plan.run_plan import OuterSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.outer_step import Floats, OuterMomentum, OuterStep, OuterSteps

NESTEROV, DELAYED = pb.OuterParameter.NESTEROV, pb.OuterParameter.DELAYED_NESTEROV


def moved(steps: Iterable[OuterStep], changes: Iterable[float], memory: OuterMomentum | None = None) -> list[float]:
    memory = memory or OuterMomentum()
    return [memory.step(step, np.array([change]))[0] for step, change in zip(steps, changes, strict=True)]


def test_nesterov_by_hand() -> None:
    """The momentum is 4, then 2 + 8 = 10, then 5 - 2 = 3; a step is half of (half of it, and the change)."""
    assert moved([OuterStep(0.5, 0.5)] * 3, [4, 8, -2]) == [0.5 * (2 + 4), 0.5 * (5 + 8), 0.5 * (1.5 - 2)]


def test_delayed_nesterov_by_hand() -> None:
    """Plain steps, then one with the momentum of all changes since: 4 + 8 - 2 = 10, and 5 + 6 = 11."""
    steps = [OuterStep(0.5, 0.5, uses) for uses in (False, False, True, True)]
    assert moved(steps, [4, 8, -2, 6]) == [2, 4, 0.5 * (5 - 2), 0.5 * (5.5 + 6)]


def test_parts_and_a_memory_that_was_saved_continue_alike() -> None:
    generator = np.random.default_rng(1)
    steps = [OuterStep(0.7, 0.9, uses) for uses in (False, True, False, False, True)]
    changes = [generator.standard_normal(7).astype(np.float32) for _ in steps]
    whole, parts = OuterMomentum(), [OuterMomentum(), OuterMomentum()]
    for step, change in zip(steps, changes, strict=True):
        expected = whole.step(step, change)
        found: list[Floats] = []
        for part, piece in zip(parts, np.split(change, [3]), strict=True):
            resumed = OuterMomentum()
            resumed.load(part.state())
            assert resumed.state().keys() == part.state().keys()
            found.append(resumed.step(step, piece))
            part.step(step, piece)
        assert expected.dtype == np.float32
        np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize(
    ("kind", "workers", "uses"),
    [(NESTEROV, 3, [True] * 5), (DELAYED, 3, [False, False, True, False, False]), (DELAYED, 1, [True] * 5)],
)
def test_when_momentum_is_used(kind: int, workers: int, uses: list[bool]) -> None:
    steps = OuterSteps(OuterSpec(type=kind, lr=0.5, momentum=0.25))
    assert [steps.next(workers) for _ in uses] == [OuterStep(0.5, 0.25, each) for each in uses]


def test_without_a_type_a_version_is_the_change_itself() -> None:
    assert OuterSteps(OuterSpec()).next() is None
