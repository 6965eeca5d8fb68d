"""A whole run on pipelines is that of one process: the same log, tests and displays in between, the same snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.solvers import spread_runs
from tests.solvers.pipelines import branched
from tests.solvers.spread_runs import Run, Saved, assert_same_lines, remove_snapshots, train

TREE = "parallel_param { exchange: TREE }"
RING = "parallel_param { exchange: RING }"
CGDP = "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }"
SEARCHED = "parallel_param { exchange: CGDP cgdp_param { interval: 1 } }"


def pipeline(stages: int, schedule: str, micro_batches: int = 1, more: str = "") -> str:
    param = f"schedule: {schedule} micro_batches: {micro_batches} {more}"
    return f"parallel_param {{ num_stages: {stages} pipeline_param {{ {param} }} }}"


@pytest.fixture(name="normalised")
def set_up_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a net that has a BatchNorm."""
    monkeypatch.chdir(tmp_path)
    spread_runs.set_up(tmp_path)
    return tmp_path


@pytest.fixture(name="branched")
def set_up_branched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    branched.set_up(tmp_path)
    return tmp_path


def alone(*overrides: str) -> tuple[Run, Saved, Saved]:
    run = train(1, "snapshot: 5", *overrides)
    saved = Saved.read(5), Saved.read(9)
    remove_snapshots()
    return run, *saved


def assert_same_run(ranks: int, *overrides: str) -> None:
    """``overrides`` must not change what one process does."""
    expected, middle, end = alone()
    run = train(ranks, "snapshot: 5", *overrides)
    assert run.iterations == [9] * ranks
    assert_same_lines(run.lines, expected.lines)
    Saved.read(5).check(middle)
    Saved.read(9).check(end)


@pytest.mark.usefixtures("normalised")
@pytest.mark.parametrize(
    ("ranks", "stages", "schedule", "exchange"),
    [
        (2, 2, "SEQUENTIAL", ""),
        (3, 3, "GPIPE", ""),
        (4, 4, "ONE_F_ONE_B", ""),
        (4, 2, "SEQUENTIAL", ""),
        (4, 2, "GPIPE", TREE),
        (4, 2, "GPIPE", RING),
        (6, 3, "SEQUENTIAL", CGDP),
        (8, 4, "ONE_F_ONE_B", SEARCHED),
    ],
)
def test_undivided_batches(ranks: int, stages: int, schedule: str, exchange: str) -> None:
    """``sync_batch_norm`` is on."""
    assert_same_run(ranks, pipeline(stages, schedule), exchange)


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("ranks", "stages", "schedule", "micro_batches", "exchange"),
    [
        (2, 2, "GPIPE", 2, ""),
        (3, 3, "GPIPE", 3, ""),
        (4, 4, "ONE_F_ONE_B", 6, ""),
        (2, 2, "ONE_F_ONE_B", 8, ""),  # micro-batches without samples
        (4, 2, "GPIPE", 4, TREE),  # a rank has 3 samples, and a micro-batch none
        (4, 2, "ONE_F_ONE_B", 3, RING),
        (6, 3, "ONE_F_ONE_B", 2, CGDP),
        (4, 2, "GPIPE", 2, SEARCHED),
        (3, 3, "SEQUENTIAL", 4, ""),
    ],
)
def test_micro_batches(ranks: int, stages: int, schedule: str, micro_batches: int, exchange: str) -> None:
    assert_same_run(ranks, pipeline(stages, schedule, micro_batches), exchange)


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize("schedule", ["GPIPE", "ONE_F_ONE_B", "SEQUENTIAL"])
@pytest.mark.parametrize("ranks", [3, 6])
def test_stages_that_are_not_contiguous(ranks: int, schedule: str) -> None:
    """Stage 0 has the first and the last layers, and data go to all."""
    net = Path("net.prototxt")
    text = net.read_text()
    for layer, stage in (("conv", 0), ("head", 2), ("left", 1), ("sum", 2), ("both", 1), ("point", 2), ("all", 0)):
        text = text.replace(f'name: "{layer}" type', f'name: "{layer}" parallel_param {{ stage: {stage} }} type')
    net.write_text(text)
    assert_same_run(ranks, pipeline(3, schedule, 2, "allocator: MANUAL"))
