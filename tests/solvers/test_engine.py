"""The memory layout is chosen by all ranks together, and all operators follow."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.comm.threads import run_ranks
from bpt.operators import layout
from bpt.proto import bpt_pb2 as pb
from bpt.solvers import engine as module
from bpt.solvers.engine import Engine

AUTO, FIRST, LAST = pb.SolverParameter.AUTO, pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST
TRIALS = 2 * (layout.WARM_UP + layout.TRIALS)


def operators(number: int = 2) -> list[Any]:
    return [SimpleNamespace(engine=FIRST) for _ in range(number)]


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes when free memory is given back."""
    calls: list[int] = []
    monkeypatch.setattr(module, "release_free_memory", lambda: calls.append(1))
    return calls


@pytest.mark.parametrize("engine", [FIRST, LAST])
def test_what_the_solver_says_stands(engine: int) -> None:
    nets = operators()
    made = Engine(engine, nets, SerialCommunicator())
    assert made.settled
    assert [net.engine for net in nets] == [engine] * 2
    made.take_over(FIRST + LAST - engine)
    assert made.settle() == engine
    assert [net.engine for net in nets] == [engine] * 2


@pytest.mark.parametrize(("slow", "expected"), [(FIRST, LAST), (LAST, FIRST)])
def test_the_slowest_rank_decides(slow: int, expected: int) -> None:
    """Rank 1 needs 3 s in the layout ``slow`` and 1 s in the other; for rank 0 it is 0.5 s and 0.9 s."""

    def run(comm: Communicator) -> tuple[list[int], bool, int]:
        nets = operators()
        made = Engine(AUTO, nets, comm)
        used, settled = [], []
        for _ in range(TRIALS):
            used.append(nets[0].engine)
            assert not made.settled
            if comm.rank == 1:
                seconds = 3.0 if used[-1] == slow else 1.0
            else:
                seconds = 0.5 if used[-1] == slow else 0.9
            settled.append(made.record(seconds))
        assert settled == [False] * (TRIALS - 1) + [True]
        return used, made.settled, nets[1].engine

    (result, other) = run_ranks(2, run)
    assert result == other
    used, settled, engine = result
    assert sorted(used) == [FIRST] * (TRIALS // 2) + [LAST] * (TRIALS // 2)
    assert settled
    assert engine == expected


def test_the_choice_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    made = Engine(AUTO, operators(), SerialCommunicator())
    with caplog.at_level(logging.INFO, "bpt"):
        for _ in range(TRIALS):
            made.record(0.002)
    assert caplog.messages == ["Engine: CHANNELS_LAST (CONTIGUOUS 2 ms, CHANNELS_LAST 2 ms an iteration)"]


def test_a_run_that_is_resumed_goes_on_in_its_layout() -> None:
    nets = operators()
    made = Engine(AUTO, nets, SerialCommunicator())
    made.take_over(LAST)
    assert made.settled
    assert [net.engine for net in nets] == [LAST] * 2


def test_a_snapshot_ends_the_trials(caplog: pytest.LogCaptureFixture) -> None:
    nets = operators()
    made = Engine(AUTO, nets, SerialCommunicator())
    made.record(1.0)
    with caplog.at_level(logging.INFO, "bpt"):
        settled = made.settle()
        assert made.settle() == settled
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"Engine: {pb.SolverParameter.Engine.Name(settled)} (")
    assert caplog.messages[0].endswith(", since a snapshot is due before all trials are done")
    assert [net.engine for net in nets] == [settled] * 2


def test_memory_of_the_other_layout_is_given_back(released: list[int]) -> None:
    nets = operators()
    made = Engine(AUTO, nets, SerialCommunicator())
    assert not released  # they start in this layout
    changes = 0
    for _ in range(TRIALS):
        before = nets[0].engine
        made.record(1.0)
        changes += nets[0].engine != before
    assert len(released) == changes > 0
