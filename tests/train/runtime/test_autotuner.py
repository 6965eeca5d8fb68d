"""Autotuner: the memory layout first, then the inner layer, then chunks, and nothing of a run's first iterations."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from bpt.parallel.cgdp.tuner import Chunks
from bpt.system.device import CPU
from bpt.train.runtime.algorithm_setting import AlgorithmSetting
from bpt.train.runtime.autotuner import Autotuner
from bpt.train.runtime.tuned_settings import TunedSetting


class Choice:
    """Settles after so many records."""

    def __init__(self, records: int) -> None:
        self.left = records
        self.seconds: list[float] = []

    @property
    def settled(self) -> bool:
        return not self.left

    def record(self, seconds: float) -> bool:
        assert self.left
        self.left -= 1
        self.seconds.append(seconds)
        return self.settled


def trials(engine: Choice, chunks: Choice, inner: Choice | None = None) -> Autotuner:
    engines = [cast(TunedSetting, engine), cast(TunedSetting, inner or Choice(0))]
    return Autotuner(engines, cast(Chunks, chunks), CPU)


def run(trying: Autotuner, iterations: int) -> list[bool]:
    settled = []
    for _ in range(iterations):
        trying.start()
        settled.append(trying.end(0))
    return settled


def test_one_after_the_other() -> None:
    engine, inner, chunks = Choice(3), Choice(2), Choice(2)
    trying = trials(engine, chunks, inner)
    assert run(trying, 3) == [False] * 3
    assert (engine.left, inner.left, chunks.left) == (0, 2, 2)
    assert run(trying, 2) == [False] * 2
    assert (inner.left, chunks.left) == (0, 2)
    assert run(trying, 3) == [False, True, False]  # the last one finds nothing to try
    assert all(seconds >= 0 for seconds in engine.seconds + inner.seconds + chunks.seconds)


def test_first_iterations_do_not_count_for_chunks() -> None:
    """Threads, memory and kernels are made ready then, which the first chunks would have to pay for."""
    chunks = Choice(2)
    trying = trials(Choice(0), chunks)
    assert run(trying, 2) == [False, False]
    assert chunks.left == 2
    assert run(trying, 2) == [False, True]


def test_nothing_to_try() -> None:
    trying = trials(Choice(0), Choice(0))
    assert trying.settled
    assert run(trying, 2) == [False, False]


def test_a_run_that_ends_too_early_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        trials(Choice(0), Choice(0)).finish()
        assert not caplog.messages
        trials(Choice(0), Choice(1)).finish()
    assert len(caplog.messages) == 1
    assert "training has ended before the search" in caplog.messages[0]


def test_algorithms_are_tried_after_the_engines_and_before_chunks() -> None:
    engine, algorithms, chunks = Choice(1), Choice(2), Choice(1)
    engines = [cast(TunedSetting, engine)]
    trying = Autotuner(engines, cast(Chunks, chunks), CPU, algorithms=cast(AlgorithmSetting, algorithms))
    assert run(trying, 1) == [False]
    assert (engine.left, algorithms.left, chunks.left) == (0, 2, 1)
    assert run(trying, 2) == [False] * 2
    assert (algorithms.left, chunks.left) == (0, 1)
    assert run(trying, 1) == [True]
