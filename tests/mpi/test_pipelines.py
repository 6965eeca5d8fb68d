"""Training on a pipeline gives the weights of one process: a row is a whole configuration; see test_check.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from scripts.make_brains import write
from tests.mpi.check_jobs import ADAM, CGDP, SGD, SYNC, TREE, Row, check, jobs
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.paths import PROTOTXT


def pipeline(stages: int, schedule: str, micro_batches: int, more: str = "", beside: str = "") -> str:
    """A row's ``parallel_param``."""
    inside = f"schedule: {schedule} micro_batches: {micro_batches} {more}"
    return f"num_stages: {stages} pipeline_param {{ {inside} }} {beside}"


def unlike(schedule: str, micro_batches: int, more: str = "", beside: str = "") -> str:
    """A row's ``parallel_param``: a replica of one stage beside one of two."""
    inside = f"schedule: {schedule} micro_batches: {micro_batches} {more}"
    return f"replica {{ }} replica {{ num_stages: 2 }} pipeline_param {{ {inside} }} {beside}"


RECOMPUTE = "recompute: true "
TASKS = "inner_param { engine: TASK_DAG num_threads: 2 } "

ROWS: dict[int, list[Row]] = {
    2: [
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", pipeline(2, "GPIPE", 3)),
        ("lenet", 10, ADAM, pipeline(2, "ONE_F_ONE_B", 4)),
        ("lenet", 10, SGD, pipeline(2, "GPIPE", 2, beside=TASKS)),
        ("googlenet", 5, SGD, pipeline(2, "GPIPE", 2)),
        ("resnet20", 6, SGD, pipeline(2, "SEQUENTIAL", 1, beside=SYNC)),
        ("resnet20", 6, SGD, pipeline(2, "GPIPE", 2)),
        ("lenet", 10, SGD, pipeline(2, "ZERO_BUBBLE", 4)),
        ("resnet20", 6, SGD, pipeline(2, "ONE_F_ONE_B", 3, RECOMPUTE)),
    ],
    3: [
        ("lenet", 10, SGD, pipeline(3, "SEQUENTIAL", 2)),
        ("googlenet", 4, SGD, pipeline(3, "ONE_F_ONE_B", 4)),
        ("resnet20", 7, SGD, pipeline(3, "ONE_F_ONE_B", 3)),
        ("cifar10_quick", 2, SGD, pipeline(3, "GPIPE", 3)),  # a micro-batch without samples
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", unlike("ONE_F_ONE_B", 3)),
        ("lenet", 10, ADAM, unlike("GPIPE", 2, beside="balance: STATIC ")),
        ("resnet20", 7, SGD, unlike("GPIPE", 2)),
        ("resnet20", 7, SGD, unlike("GPIPE", 2, "batch_norm_over: BATCH ", SYNC)),
    ],
    4: [
        ("lenet", 10, SGD + "clip_gradients: 0.5", pipeline(2, "GPIPE", 2, beside=TREE)),
        ("lenet", 10, ADAM, pipeline(2, "GPIPE", 2, beside="exchange: RING ")),
        ("lenet", 10, SGD, pipeline(2, "ONE_F_ONE_B", 3, beside=CGDP.format(1))),
        ("lenet", 1, SGD, pipeline(2, "GPIPE", 2)),  # a replica without samples
        ("googlenet", 4, SGD, pipeline(4, "GPIPE", 2)),
        ("googlenet", 4, SGD, pipeline(4, "ZERO_BUBBLE", 4, RECOMPUTE)),
        ("googlenet", 4, SGD, pipeline(2, "GPIPE", 2, "allocator: GABRA partitions: 9 ")),
        ("resnet20", 8, SGD, pipeline(2, "GPIPE", 2)),
        ("resnet20", 6, SGD, pipeline(2, "SEQUENTIAL", 1, beside=SYNC)),
    ],
    6: [("lenet", 5, SGD, pipeline(3, "ONE_F_ONE_B", 2))],  # two replicas of three stages
}


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(("ranks", "rows"), jobs(ROWS, (3,)))
def test_a_pipeline_gives_the_weights_of_one_process(ranks: int, rows: list[Row], data: Path) -> None:
    check(ranks, rows, data)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "parallel",
    [
        pipeline(2, "GPIPE", 2, beside="sync_batch_norm: false"),
        pipeline(2, "ONE_F_ONE_B", 2, beside="sync_batch_norm: false"),
        pipeline(2, "SEQUENTIAL", 1),
    ],
)
def test_a_net_for_scans(parallel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solver of the small 3D-ResAttNet as it is, on a few brains, through ``bpt check``."""
    monkeypatch.chdir(tmp_path)
    Path("prototxt").symlink_to(PROTOTXT)
    write(Path("data/brains"), size=16, counts=(8, 2), seed=0, shrink=0.6, noise=0.1)
    solver = PROTOTXT / "resattnet18_3d" / "solver_small.prototxt"
    words = ["check", f"--solver={solver}", "--iterations=2"]
    text = f"random_seed: 7 parallel_param {{ {parallel} }}"
    done = mpirun(2, [sys.executable, "-m", "bpt", *words, f"--set={text}"], timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^fc/1 .* ok$", done.stdout, re.MULTILINE), done.stdout
    assert "Stage 1: " in done.stderr
    assert "All ranks and one process agree: no relative difference is above 1e-05" in done.stderr
