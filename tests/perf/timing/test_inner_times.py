"""The tables of the inner layer in ``bpt time``, line by line; and that they come from training by both engines."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path

import pytest
import torch

from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.parallel import task_dag
from bpt.parallel.task_dag import TaskDagCompute
from bpt.parallel.task_dag.task_dag import LaneEvent, Task, TaskDag, Timeline
from bpt.perf.timing.inner_times import LIBRARY, TASK_DAG, Pass, log_inner_times, pass_of, side_by_side, task_tables
from bpt.system.comm.base import Communicator
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import SOLVER, small_solver
from tests.support.task_dag_nets import TINY, dag_operator, dag_threads, tasks_of


def test_both_engines_side_by_side() -> None:
    """Medians of 20, 30, 40 and 60, 70, 90 ms; half the quartiles' distance is half the neighbours' mean distance."""
    seconds: dict[int, list[tuple[float, float]]] = {
        LIBRARY: [(0.02, 0.06), (0.03, 0.07), (0.04, 0.09)],
        TASK_DAG: [(0.015, 0.07), (0.015, 0.07)],
    }
    assert list(side_by_side(seconds)) == [
        "                        forward ms     backward ms           both ms",
        "LIBRARY             30.000 ± 5.000  70.000 ± 7.500  100.000 ± 12.500",
        "TASK_DAG            15.000 ± 0.000  70.000 ± 0.000    85.000 ± 0.000",
        "TASK_DAG / LIBRARY           0.500           1.000             0.850",
    ]


def test_no_ratio_where_both_are_the_same() -> None:
    seconds: dict[int, list[tuple[float, float]]] = {LIBRARY: [(0.02, 0.06)], TASK_DAG: [(0.015, 0.07)]}
    assert [line.split()[0] for line in side_by_side(seconds, is_library=True)] == ["forward", "LIBRARY", "TASK_DAG"]


def test_one_thread_runs_nothing_side_by_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = SOLVER + "parallel_param { inner_param { engine: AUTO num_threads: 1 } }"
    source = small_solver(tmp_path, "max_iter: 1000 snapshot_after_train: false", text=text)
    with caplog.at_level(logging.INFO, "bpt"), Solver(source) as solver:
        log_inner_times(solver.runtime, 1)
    assert "Inner layer: both engines on 1 thread in turn, 1 iteration each:" in caplog.messages
    assert caplog.messages[-1].startswith("TASK_DAG finds no tasks to run in parallel here")
    assert not any(message.startswith("TASK_DAG / LIBRARY") for message in caplog.messages)


def passed(seconds: float, *events: tuple[int, int, float, float]) -> Timeline:
    """Of task b after a and tasks c, d by themselves, on 2 threads."""
    dag = TaskDag([Task("a"), Task("b", needs=(0,)), Task("c"), Task("d", pinned=True)])
    return Timeline(dag, 2, tuple(LaneEvent(*event) for event in events), seconds)


def test_what_the_threads_did() -> None:
    """a and b take 40 and 60 ms on thread 0, c 50 ms on thread 1, d 1 ms where the pass was asked for."""
    whole = passed(0.11, (0, 0, 0.0, 0.04), (2, 1, 0.0, 0.05), (3, 2, 0.0, 0.001), (1, 0, 0.04, 0.1))
    other = passed(0.22, (0, 0, 0.0, 0.2), (2, 1, 0.0, 0.2), (3, 2, 0.0, 0.001), (1, 0, 0.2, 0.201))
    timelines = {(0, "forward"): whole, (1, "forward"): whole, (0, "backward"): other}
    passes = {direction: [pass_of(timelines, direction)] * 3 for direction in ("forward", "backward")}
    # Waiting: 110 - (100 + 50) / 2 in each of two segments; 220 - (201 + 200) / 2.
    assert list(task_tables(passes)) == [
        "TASK_DAG, median of 3 passes:",
        "          tasks       ms  critical path ms  least busy ms  most busy ms  balance  waiting ms",
        "forward       8  220.000           200.000        100.000       200.000    0.750      70.000",
        "backward      4  220.000           201.000        200.000       201.000    0.998      19.500",
        "critical path: the lower bound for any number of threads. busy: time in tasks of the least and of the most",
        "busy thread. balance: mean busy time / most busy time. waiting: mean time of a thread without tasks.",
        "Critical path of forward, 200.000 of 220.000 ms:",
        "task      ms   part",
        "a     40.000  20.0%",
        "b     60.000  30.0%",
        "a     40.000  20.0%",
        "b     60.000  30.0%",
        "Critical path of backward, 201.000 of 220.000 ms:",
        "task           ms   part",
        "a         200.000  99.5%",
        "1 others    1.000   0.5%",
    ]


def test_nothing_to_run_side_by_side() -> None:
    (line,) = task_tables({"forward": [Pass(())], "backward": [Pass(())]})
    assert line == "TASK_DAG finds no tasks to run in parallel here, so it runs the net as LIBRARY does."


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_solver_trains_on_while_it_is_timed(
    ranks: int, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_dag, "TaskDagCompute", partial(TaskDagCompute, grain=TINY))
    text = SOLVER + "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"
    source = small_solver(tmp_path, "max_iter: 1000 snapshot_after_train: false", text=text)

    def run(comm: Communicator) -> tuple[int, list[float]]:
        with Solver(source, world=comm) as solver:
            log_inner_times(solver.runtime, 3)
            assert tasks_of(solver.runtime.nets.train.operator).inner == TASK_DAG
            return solver.runtime.iteration, [float(value.detach().sum()) for value in solver.net.parameters()]

    with caplog.at_level(logging.INFO, "bpt"):
        first, *others = run_ranks(ranks, run)
    assert all(other == first for other in others)
    assert first[0] == 12  # 3 turns of either engine, of 1 iteration and 1 before it
    log = "\n".join(caplog.messages)
    assert "Inner layer: both engines on 2 threads in turn, 3 iterations each:" in log
    assert re.search(r"LIBRARY +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+\nTASK_DAG +[\d.]+ ± ", log)
    assert re.search(r"forward +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[01]\.\d+ +[\d.]+\nbackward +\d+ ", log)
    assert "Critical path of backward, " in log


def test_without_an_inner_layer_nothing_is_trained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Solver(small_solver(tmp_path)) as solver:
        caplog.clear()
        log_inner_times(solver.runtime, 3)
        assert solver.runtime.iteration == 0
    assert caplog.messages == []


def test_threads_end_where_the_library_is_chosen(tmp_path: Path) -> None:
    before = dag_threads()
    started = set()

    def make(net: Net, device: torch.device) -> Operator:
        operator = dag_operator(net, device=device)
        tasks_of(operator).inner = LIBRARY
        return operator

    with Solver(small_solver(tmp_path), TrainOptions(make_operator=make)) as solver:
        solver.runtime.updater.before_update.append(lambda loss: started.update(dag_threads() - before))
        log_inner_times(solver.runtime, 1)
        assert tasks_of(solver.runtime.nets.train.operator).inner == LIBRARY
    assert len(started) == 2
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()
