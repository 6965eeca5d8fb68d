"""Training on two hosts that are not alike, over a network: the curve of one process, on any number of ranks."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

import bpt
from tests.integration.testbed import ended, needs_mpi, needs_testbed, program, rank_on, started, up
from tests.support.marks import slow
from tests.support.paths import GOLDEN, ROOT

pytestmark = [*needs_testbed, needs_mpi]

NET = ROOT / "prototxt" / "lenet"
SOLVER = f'''
net: "{NET / "train_val.prototxt"}"
base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005
max_iter: 8 snapshot: 4 display: 1 random_seed: 1 solver_mode: CPU
test_iter: 1 test_interval: 100 test_initialization: false
'''
STOP = "parallel_param { fault_param { on_loss: STOP } }"
TRAIN = ("bpt", "train", "--solver", "solver.prototxt", "--set")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a solver and LeNet's data."""
    (tmp_path / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)


def assert_same_weights(one: str, other: str) -> None:
    """Each parameter within 1e-5 of its largest element."""
    ours, theirs = (bpt.load_module(str(NET / "deploy.prototxt"), f"{name}_iter_8.caffemodel") for name in (one, other))
    for name, mine in ours.named_parameters():
        other_one = theirs.get_parameter(name)
        assert (mine - other_one).abs().max() <= 1e-5 * mine.abs().max(), name


@pytest.mark.slow
def test_train_and_resume_on_other_numbers_of_ranks() -> None:
    with bpt.get_solver("solver.prototxt", 'snapshot_prefix: "alone"') as solver:
        solver.solve()
    up("a:1.0,b:0.5", "--bandwidth", "1gbit")
    program("run", "--", *TRAIN, 'snapshot_prefix: "two"')
    assert_same_weights("alone", "two")
    for ranks, slots in (("one", "b:1"), ("three", "a:2,b:1")):
        resume = (*TRAIN, f'snapshot_prefix: "{ranks}"', "--snapshot", "two_iter_4.solverstate")
        program("run", "--slots", slots, "--", *resume)
        assert_same_weights("alone", ranks)


@pytest.mark.parametrize(
    ("options", "fault", "says"),
    [
        # Either mpirun on a hears of it first, or rank 0, whose connection breaks: Open MPI then ends the job by
        # itself, in words that may not name the killed rank. Only fault tolerance leaves the naming to us.
        slow([], "", r"rank 1 .*on node b exited on signal 9|Peer host: b|An error occurred in Socket closed"),
        (["--with-ft", "ulfm"], STOP, r"rank 0 \(host a\): rank 1 \(host b\) is gone"),
    ],
    ids=["plain", "fault tolerance"],
)
def test_a_killed_rank_ends_the_job(options: list[str], fault: str, says: str) -> None:
    up("a:1.0,b:0.5", "--bandwidth", "1gbit")
    setting = f'max_iter: 1000000 snapshot_prefix: "never" {fault}'
    with started(*options, "--", *TRAIN, setting, ready="Iteration 1 ") as job:
        os.kill(rank_on("b", "bpt"), signal.SIGKILL)
        status, told = ended(job)
    assert status != 0 or options, told  # with fault tolerance, Open MPI's mpirun makes 0 of it
    assert re.search(says, " ".join(told.split())), told
