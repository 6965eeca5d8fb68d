"""Commands under mpirun: all ranks work, the first one alone logs and writes, and a refusal is told once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi
from tests.support.spread_runs import Saved, set_up, train

pytestmark = needs_mpi

BPT = [sys.executable, "-m", "bpt"]
PEERS = "parallel_param { num_shards: 2 }"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    return tmp_path


def bpt(ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    return mpirun(ranks, [*BPT, *words], timeout=120)


def texts(log: str) -> list[str]:
    """What the lines of the log say, without time and place."""
    return [re.sub(r"^[IWE]\d{4} [\d:.]+ +\d+ \S+\] ", "", line) for line in log.splitlines()]


def test_training_is_that_of_one_process() -> None:
    """Sharded, and with a snapshot of which another number of ranks goes on."""
    train(1)
    expected = Saved.read(9)
    for path in Path().glob("small_iter_*"):
        path.unlink()
    done = bpt(2, "train", "--solver", "solver.prototxt", "--set", f"max_iter: 6 {PEERS}")
    assert done.returncode == 0, done.stderr
    log = texts(done.stderr)
    assert sum(line.startswith("Parallel: 2 ranks = 1 replica × 2 shards") for line in log) == 1
    assert sum(line.startswith("Iteration 3 (") for line in log) == 1
    assert log.count("Optimization Done.") == 1
    done = bpt(3, "train", "--solver", "solver.prototxt", "--snapshot", "auto")
    assert done.returncode == 0, done.stderr
    assert texts(done.stderr).count("Resuming from small_iter_6.solverstate") == 1
    Saved.read(9).check(expected)


@pytest.mark.slow
def test_a_refusal_is_told_once() -> None:
    done = bpt(2, "time", "--model", "net.prototxt")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "error" in line] == [
        "error: --model times one process: leave mpirun out, or give --solver to time training on all ranks"
    ]
