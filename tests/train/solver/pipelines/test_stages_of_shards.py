"""Whole runs in which stages, layers split over shards and the inner layer's tasks combine are those of one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bpt.parallel import task_dag
from bpt.parallel.task_dag import TaskDagCompute
from bpt.train.solver.solver import Solver
from tests.support import spread_runs
from tests.support.marks import slow
from tests.support.spread_runs import Saved, assert_same_lines, remove_snapshots, train
from tests.support.task_dag_nets import TINY, tasks_of
from tests.train.solver.pipelines import branched
from tests.train.solver.pipelines.pipeline_runs import BRANCHED, CGDP, NORMALISED, RING, TREE, place_all

PEER, MASTER = "", "parallel_param { fc_param { scheme: MASTER_SLAVE } }"
TASKS = "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"
DOUBLE = "precision: FLOAT64"


def spread(stages: int, shards: int, schedule: str = "GPIPE", micro_batches: int = 1) -> str:
    param = f"schedule: {schedule} micro_batches: {micro_batches} allocator: MANUAL"
    net = f'net: "{stages}.prototxt"' if stages > 1 else ""
    return f"parallel_param {{ num_stages: {stages} num_shards: {shards} pipeline_param {{ {param} }} }} {net}"


@pytest.fixture(name="normalised")
def set_up_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A net with a BatchNorm."""
    monkeypatch.chdir(tmp_path)
    spread_runs.set_up(tmp_path)
    place_all(NORMALISED)


@pytest.fixture(name="branched")
def set_up_branched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A net with branches, two heads and shared parameters; a Dropout runs on slices."""
    monkeypatch.chdir(tmp_path)
    branched.set_up(tmp_path)
    place_all(BRANCHED)


def assert_same_run(ranks: int, *overrides: str, alone: tuple[str, ...] = (DOUBLE,), on: int = 1) -> list[Solver]:
    """Of ``ranks`` with ``overrides`` and of ``on`` without: log, tests, snapshots, in float64; returns the solvers."""
    expected = train(on, "snapshot: 5", *alone)
    middle, end = Saved.read(5), Saved.read(9)
    remove_snapshots()
    solvers: list[Solver] = []
    run = train(ranks, "snapshot: 5", *alone, *overrides, each=solvers.append)
    assert run.iterations == [9] * ranks
    assert_same_lines(run.lines, expected.lines, 1e-5)  # as many digits are printed
    Saved.read(5).check(middle, 1e-6)  # a snapshot holds float32
    Saved.read(9).check(end, 1e-6)
    return solvers


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("ranks", "shape", "scheme", "exchange"),
    [
        slow(4, (2, 2, "SEQUENTIAL", 1), PEER, ""),
        (4, (2, 2, "GPIPE", 3), MASTER, TREE),
        # Of a replica's 3 samples the peers have 2 and 1, in 2 micro-batches.
        pytest.param(8, (2, 2, "GPIPE", 2), PEER, RING, marks=pytest.mark.slow),
        pytest.param(8, (2, 2, "ONE_F_ONE_B", 2), MASTER, "", marks=pytest.mark.slow),
        pytest.param(8, (4, 2, "ONE_F_ONE_B", 3), PEER, "", marks=pytest.mark.slow),
        (6, (3, 2, "ONE_F_ONE_B", 2), PEER, CGDP),  # the first stage has no layer that is split
        slow(6, (3, 2, "GPIPE", 2), MASTER, ""),  # nothing to do for a slave there
        # Slices without features, micro-batches without samples.
        pytest.param(8, (2, 4, "GPIPE", 3), PEER, "", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_stages_of_shards(ranks: int, shape: tuple[int, int, str, int], scheme: str, exchange: str) -> None:
    assert_same_run(ranks, spread(*shape), scheme, exchange)


@pytest.mark.usefixtures("normalised")
@pytest.mark.parametrize(
    ("stages", "scheme"),
    [
        (2, PEER),  # slices go from one split layer to the next
        (2, MASTER),
        (4, PEER),  # between two stages they are whole
    ],
)
@pytest.mark.slow
def test_moments_of_all_samples(stages: int, scheme: str) -> None:
    """``sync_batch_norm`` is on: the BatchNorm is on a stage without layers that are split."""
    assert_same_run(2 * stages, spread(stages, 2), scheme)


# Tasks


def run_by_tasks(solvers: list[Solver]) -> bool:
    """Whether any rank has."""
    return any(tasks_of(solver.runtime.nets.train.operator).timelines for solver in solvers)


@pytest.fixture(name="small_tasks")
def set_grain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is split that can be."""
    monkeypatch.setattr(task_dag, "TaskDagCompute", partial(TaskDagCompute, grain=TINY))


@pytest.mark.usefixtures("branched", "small_tasks")
@pytest.mark.parametrize(
    ("ranks", "shape", "scheme"),
    [
        slow(3, (1, 3), PEER),
        (2, (1, 2), MASTER),
        slow(4, (2, 2, "ONE_F_ONE_B", 2), MASTER),
        pytest.param(8, (2, 2, "GPIPE", 3), PEER, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_tasks(ranks: int, shape: tuple[int, int, str, int], scheme: str) -> None:
    assert run_by_tasks(assert_same_run(ranks, spread(*shape), scheme, TASKS))


# Delays


ONCE = "iter_size: 1 clip_gradients: -1 base_lr: 0.01"


@pytest.mark.usefixtures("branched", "small_tasks")
@pytest.mark.parametrize(
    ("ranks", "shape", "more"),
    [
        (4, (2, 2), PEER),
        slow(4, (2, 2), MASTER),
        slow(6, (3, 2), CGDP),
        (3, (3, 1), TASKS),
        pytest.param(8, (2, 2), TASKS, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_delayed(ranks: int, shape: tuple[int, int], more: str) -> None:
    """The curve of as many stages of one rank each, by the library."""
    stages, shards = shape
    alone = (DOUBLE, ONCE, spread(stages, 1, "DELAYED"))
    solvers = assert_same_run(ranks, spread(stages, shards, "DELAYED"), more, alone=alone, on=stages)
    assert more != TASKS or run_by_tasks(solvers)
