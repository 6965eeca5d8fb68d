"""A launcher that is told to end, ``bpt run`` and ``bpt stop`` leave a snapshot, as one process would.

Its 30th iteration lasts until the launcher is gone: a large snapshot takes longer than the launcher waits, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bpt.train import state as snapshot
from tests.support.mpirun import all_end, mpi_environment, needs_mpi, started

pytestmark = needs_mpi

BPT = (sys.executable, "-m", "bpt")
TRAIN = (*BPT, "train", "--solver", "solver.prototxt", "--snapshot", "auto")
SOLVER = """
net_param {
  name: "small"
  layer { name: "d" type: "DummyData" top: "data" top: "label" dummy_data_param {
    shape { dim: 8 dim: 4 } shape { dim: 8 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
  layer { name: "held" type: "Python" bottom: "data" top: "held" python_param { module: "held" layer: "Held" } }
  layer { name: "ip" type: "InnerProduct" bottom: "held" top: "ip"
    inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
}
base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 max_iter: 100000000 display: 20 snapshot_prefix: "small"
solver_mode: CPU random_seed: 1
"""
HELD = """
import os
import time

from torch import nn


class Held(nn.Module):
    passes = 0

    def forward(self, x):
        self.passes += 1
        while self.passes == 30 and os.path.exists("hold"):
            time.sleep(0.01)
        return x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solver.prototxt").write_text(SOLVER)
    Path("held.py").write_text(HELD)
    Path("hold").touch()


class Job:
    """A job of two ranks that has trained for some iterations."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log = ""
        assert process.stderr is not None
        for line in process.stderr:
            self.log += line
            if "Iteration 20 " in line:
                break
        else:
            pytest.fail(self.log)
        self.first = int(json.loads(Path("small.lock").read_text())["pid"])

    def rest(self) -> int:
        """Read what comes until all ranks have ended, which have the launcher's output as well; the exit status."""
        assert self.process.stderr is not None
        self.log += self.process.stderr.read()
        return self.process.wait()


def left_all_in_order(job: Job) -> None:
    """There is a whole snapshot, which the log names, and nothing that a run leaves that is killed."""
    newest = snapshot.find_newest("small")
    assert newest is not None, job.log
    iterations = snapshot.read_state(newest).iter
    assert 20 < iterations <= 31
    assert f"Stopped after {iterations} iterations, all of them saved; --snapshot {newest} continues" in job.log
    assert not Path("small.lock").exists()
    assert not list(Path().glob("*flight_recorder*"))
    assert "Traceback" not in job.log


def to_launcher(number: signal.Signals) -> Callable[[int], None]:
    return lambda launcher: os.kill(launcher, number)


def to_group(launcher: int) -> None:
    """As a terminal does it."""
    os.killpg(launcher, signal.SIGINT)


@pytest.mark.parametrize(("how", "options"), [
    pytest.param(to_launcher(signal.SIGINT), (), id="SIGINT"),
    pytest.param(to_group, (), id="Ctrl-C", marks=pytest.mark.slow),
    pytest.param(to_launcher(signal.SIGTERM), (), id="SIGTERM", marks=pytest.mark.slow),
    pytest.param(to_launcher(signal.SIGHUP), (), id="SIGHUP", marks=pytest.mark.slow),
    pytest.param(to_launcher(signal.SIGINT), ("--with-ft", "ulfm"), id="SIGINT, tolerant", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_launcher_that_is_told_to_end(how: Callable[[int], None], options: Sequence[str]) -> None:
    with started(2, TRAIN, options=options) as process:
        job = Job(process)
        how(process.pid)
        process.wait()  # it is gone, and so are the processes that it has started
        assert snapshot.find_newest("small") is None
        Path("hold").unlink()
        assert job.rest() != 0
        all_end(process.pid, seconds=60)
    left_all_in_order(job)
    assert f"SIGTERM: training stops after the current iteration. Process {job.first} writes its snapshot" in job.log


@pytest.mark.slow
def test_a_rank_that_is_killed_leaves_no_orphans() -> None:
    """The launcher ends the others by the same SIGTERM; they cannot stop in good order without it."""
    with started(2, TRAIN) as process:
        job = Job(process)
        os.kill(job.first, signal.SIGKILL)
        process.wait()
        all_end(process.pid, seconds=60)
    assert snapshot.find_newest("small") is None


@pytest.mark.slow
def test_a_launcher_that_is_killed_takes_its_ranks_along() -> None:
    with started(2, TRAIN) as process:
        Job(process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        all_end(process.pid, seconds=60)


@pytest.fixture
def launching() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts ``bpt run`` with a command; ended should it hang."""
    jobs = []

    def launch(*words: str) -> subprocess.Popen[str]:
        job = subprocess.Popen([*BPT, "run", "--", *words], stderr=subprocess.PIPE, text=True, env=mpi_environment())
        timer = threading.Timer(180, job.terminate)
        timer.start()
        jobs.append((job, timer))
        return job

    yield launch
    for job, timer in jobs:
        timer.cancel()
        job.terminate()
        job.wait()
        assert job.stderr is not None
        job.stderr.close()


MPIRUN = (str(Path(sys.executable).with_name("mpirun")), "--oversubscribe", "-n", "2", *TRAIN)


@pytest.mark.parametrize(("words", "number", "status"), [
    (MPIRUN, signal.SIGINT, 0),
    pytest.param(MPIRUN, signal.SIGTERM, 1, marks=pytest.mark.slow),
    pytest.param(("sh", "-c", f"{' '.join(MPIRUN)}; exit $?"), signal.SIGINT, 0, marks=pytest.mark.slow),
    pytest.param(("sh", "-c", f"{' '.join(TRAIN)}; exit $?"), signal.SIGINT, 0, marks=pytest.mark.slow),
])  # fmt: skip
def test_bpt_run(
    words: Sequence[str], number: signal.Signals, status: int, launching: Callable[..., subprocess.Popen[str]]
) -> None:
    """It has a rank stop the job, and waits: whatever has started the ranks need not know of signals."""
    process = launching(*words)
    job = Job(process)
    process.send_signal(number)
    Path("hold").unlink()
    assert job.rest() == status
    left_all_in_order(job)


def test_bpt_stop() -> None:
    with started(2, TRAIN) as process:
        job = Job(process)
        argv = [*BPT, "stop", "--solver", "solver.prototxt"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as stop:
            assert stop.stderr is not None
            assert f"Asked process {job.first} on host " in stop.stderr.readline()
            Path("hold").unlink()
            assert job.rest() == 0
            told = stop.stderr.read()
        assert stop.returncode == 0
    left_all_in_order(job)
    assert f"--snapshot {snapshot.find_newest('small')} continues it" in told
