"""``bpt stop`` finds the run by its lock, and says why it cannot stop one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.cli.main import main
from bpt.train.state.prefix_lock import PrefixLock, holder_of

SOLVER = """
net_param { name: "n" layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 1 } } } }
snapshot_prefix: "small" max_iter: 1 base_lr: 0.1 lr_policy: "fixed"
"""
# Has the lock until SIGUSR1 comes, and may write a solver state before it ends.
RUN = """
import signal, sys
from pathlib import Path
from bpt.train.state.prefix_lock import PrefixLock
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
with PrefixLock("small"):
    print("ready", flush=True)
    signal.sigwait({signal.SIGUSR1})
    if sys.argv[1] == "writes":
        Path("small_iter_7.solverstate").touch()
"""
STOP = ["stop", "--solver", "solver.prototxt"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("solver.prototxt").write_text(SOLVER)


@pytest.mark.parametrize(("does", "status", "told"), [
    ("writes", 0, "The run has ended; --snapshot small_iter_7.solverstate continues it"),
    ("writes nothing", 1, "the run has ended without a new snapshot under small: the newest is small_iter_3."),
])  # fmt: skip
def test_a_run_that_lives(does: str, status: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("small_iter_3.solverstate").touch()
    os.utime("small_iter_3.solverstate", (1, 1))
    with subprocess.Popen([sys.executable, "-c", RUN, does], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        assert main(STOP) == status
    assert told in capsys.readouterr().err
    assert not Path("small.lock").exists()


@pytest.mark.parametrize(("host", "told"), [
    (None, "no run writes snapshots under small"),
    ("", "the run that left small.lock has ended (process 1 on host "),
])  # fmt: skip
def test_no_run(host: str | None, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    if host is not None:
        Path("small.lock").write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "since": "now"}))
    assert main(STOP) == 2
    assert told in capsys.readouterr().err


def test_a_run_on_another_host(capsys: pytest.CaptureFixture[str]) -> None:
    with PrefixLock("small"):
        Path("small.lock").write_text(json.dumps({"host": "elsewhere", "pid": os.getpid(), "since": "now"}))
        assert main(STOP) == 2
        holder = holder_of("small")
    assert holder is not None and holder.lives
    assert (
        f"on host elsewhere, since now, and this one is {socket.gethostname()}; call bpt stop there"
        in capsys.readouterr().err
    )


def test_a_lock_that_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.lock").write_text("x")
    assert main(STOP) == 2
    assert "no run writes snapshots under small" in capsys.readouterr().err
