"""Memory layout and inner layer are chosen by all ranks together, and all operators follow."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from bpt.config.plan.run_plan import InnerSpec, ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.inner_choice import InnerChoice
from bpt.engine.measured_choice import WARM_UP
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime import tuned_settings as module
from bpt.train.runtime.tuned_settings import Inner, MemoryFormatSetting
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.task_dag_nets import INCEPTION, dag_operator, image_net, net_of, pass_over, tasks_of

AUTO, FIRST, LAST = pb.SolverParameter.AUTO, pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST
TRIALS = 2 * (WARM_UP + MemoryFormatChoice.trials)
LIBRARY, TASK_DAG = pb.InnerParameter.LIBRARY, pb.InnerParameter.TASK_DAG
INNER_TRIALS = 2 * (WARM_UP + InnerChoice.trials)


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
    made = MemoryFormatSetting(engine, nets, SerialCommunicator())
    assert made.settled
    assert [net.engine for net in nets] == [engine] * 2
    made.load((FIRST + LAST - engine,))
    assert made.settle() == engine
    assert [net.engine for net in nets] == [engine] * 2


@pytest.mark.parametrize(("slow", "expected"), [(FIRST, LAST), (LAST, FIRST)])
def test_the_slowest_rank_decides(slow: int, expected: int) -> None:
    """Rank 1 needs 3 s in the layout ``slow`` and 1 s in the other; for rank 0 it is 0.5 s and 0.9 s."""

    def run(comm: Communicator) -> tuple[list[int], bool, int]:
        nets = operators()
        made = MemoryFormatSetting(AUTO, nets, comm)
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
    made = MemoryFormatSetting(AUTO, operators(), SerialCommunicator())
    with caplog.at_level(logging.INFO, "bpt"):
        for _ in range(TRIALS):
            made.record(0.002)
    assert caplog.messages == ["Engine: CHANNELS_LAST (CONTIGUOUS 2 ms, CHANNELS_LAST 2 ms an iteration)"]


def test_a_run_that_is_resumed_goes_on_in_its_layout() -> None:
    nets = operators()
    made = MemoryFormatSetting(AUTO, nets, SerialCommunicator())
    made.load((LAST,))
    assert made.settled
    assert [net.engine for net in nets] == [LAST] * 2


def test_a_snapshot_ends_the_trials(caplog: pytest.LogCaptureFixture) -> None:
    nets = operators()
    made = MemoryFormatSetting(AUTO, nets, SerialCommunicator())
    made.record(1.0)
    with caplog.at_level(logging.INFO, "bpt"):
        settled = made.settle()
        assert made.settle() == settled
    assert len(caplog.messages) == 1
    # Nothing has been measured yet, and so no times are told.
    name = pb.SolverParameter.Engine.Name(settled)
    assert caplog.messages[0] == f"Engine: {name}, since a snapshot is due before all trials are done"
    assert [net.engine for net in nets] == [settled] * 2


def test_memory_of_the_other_layout_is_given_back(released: list[int]) -> None:
    nets = operators()
    made = MemoryFormatSetting(AUTO, nets, SerialCommunicator())
    assert not released  # they start in this layout
    changes = 0
    for _ in range(TRIALS):
        before = nets[0].engine
        made.record(1.0)
        changes += nets[0].engine != before
    assert len(released) == changes > 0


def asking(engine: int) -> ParallelSpec:
    return ParallelSpec(inner_param=InnerSpec(engine=engine))


def small_operator(threads: int = 2) -> Operator:
    return dag_operator(net_of(image_net(INCEPTION)), threads=threads)


def seconds_of(operator: Operator, slow: int) -> float:
    return 2.0 if tasks_of(operator).inner == slow else 1.0


@pytest.mark.parametrize(("slow", "expected"), [(LIBRARY, TASK_DAG), (TASK_DAG, LIBRARY)])
def test_the_inner_layer_is_the_faster_one(slow: int, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    """The operator really runs by what is tried; LIBRARY leaves no threads behind."""
    before = set(threading.enumerate())
    operator = small_operator()
    made = Inner(asking(pb.InnerParameter.AUTO), [operator], SerialCommunicator())
    used = []
    with caplog.at_level(logging.INFO, "bpt"):
        while not made.settled:
            used.append(tasks_of(operator).inner)
            tasks_of(operator).timelines.clear()
            operator.net.zero_grad()
            pass_over(operator)
            assert bool(tasks_of(operator).timelines) == (tasks_of(operator).inner == TASK_DAG)
            made.record(seconds_of(operator, slow))
    assert sorted(used) == [LIBRARY] * (INNER_TRIALS // 2) + [TASK_DAG] * (INNER_TRIALS // 2)
    assert tasks_of(operator).inner == expected
    started = set(threading.enumerate()) - before
    if expected == TASK_DAG:
        assert len(started) == 2
        operator.compute.close()
    for thread in started:
        thread.join(120)
        assert not thread.is_alive()
    times = {LIBRARY: 1, TASK_DAG: 1, slow: 2}
    assert caplog.messages == [
        f"Inner: {pb.InnerParameter.Engine.Name(expected)} "
        f"(LIBRARY {times[LIBRARY]}e+03 ms, TASK_DAG {times[TASK_DAG]}e+03 ms an iteration)"
    ]


@pytest.mark.parametrize("engine", [LIBRARY, TASK_DAG])
def test_an_inner_layer_that_is_asked_for_is_not_tried(engine: int) -> None:
    operator = small_operator()
    made = Inner(asking(engine), [operator], SerialCommunicator())
    assert made.settled
    made.load((LIBRARY + TASK_DAG - engine,))
    assert made.settle() == engine
    assert tasks_of(operator).inner == TASK_DAG  # as it was made


def test_auto_is_the_library_where_nothing_can_run_tasks() -> None:
    net = net_of(image_net(INCEPTION))
    nets = [Operator(net), small_operator(threads=1)]
    made = Inner(asking(pb.InnerParameter.AUTO), nets, SerialCommunicator())
    assert made.settled
    assert made.settle() == LIBRARY


def test_ranks_that_cannot_run_tasks_try_along() -> None:
    """As on a GPU: its times count, and all settle alike. The one with a choice is rank 1, whose tasks are slow."""

    def run(comm: Communicator) -> tuple[int, int]:
        operator = small_operator()
        own = [operator] if comm.rank else [Operator(operator.net)]
        made = Inner(asking(pb.InnerParameter.AUTO), own, comm)
        records = 0
        while not made.settled:
            made.record(seconds_of(operator, TASK_DAG) if comm.rank else 0.1)
            records += 1
        return made.settle(), records

    assert run_ranks(2, run) == [(LIBRARY, INNER_TRIALS)] * 2


def test_a_resumed_run_goes_on_with_its_inner_layer() -> None:
    operator = small_operator()
    made = Inner(asking(pb.InnerParameter.AUTO), [operator], SerialCommunicator())
    assert tasks_of(operator).inner == LIBRARY
    made.load((TASK_DAG,))
    assert made.settled
    assert tasks_of(operator).inner == TASK_DAG
