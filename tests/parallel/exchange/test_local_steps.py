"""When replicas of exchange: LOCAL average their weights, as one reads it."""

from __future__ import annotations

from bpt.engine.scheduler import Synchronous
from bpt.parallel.exchange.local_steps import LocalSteps, LocalUpdates


def test_iterations_that_end_with_an_average() -> None:
    """From iteration 2 on, each third update: those of iterations 4, 7, …"""
    updates = LocalUpdates(Synchronous(1), LocalSteps(3, 2))
    told = [" ".join(map(str, updates.training(iteration, 0))) for iteration in range(9)]
    assert {iteration for iteration, each in enumerate(told) if each == "F0 B0 X0 W U A"} == {4, 7}
    assert {each for iteration, each in enumerate(told) if iteration not in (4, 7)} == {"F0 B0 X0 W U"}


def test_between_averages_replicas_are_apart() -> None:
    local = LocalSteps(3, 2)
    assert [done for done in range(10) if local.replicas_diverged(done)] == [3, 4, 6, 7, 9]
    assert [iteration for iteration in range(4) if local.is_local(iteration)] == [2, 3]
    assert not any(LocalSteps(1).replicas_diverged(done) for done in range(5))
