"""One live run a prefix: who is kept out, and by whom; stale locks and leftovers."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.base.errors import UserError, WriteError
from bpt.config.plan.resolve import read_plan
from bpt.train.state.prefix_lock import PrefixLock, held_for

HOLD = """
import sys
from bpt.train.state.prefix_lock import PrefixLock
with PrefixLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_second_live_run_is_refused() -> None:
    with PrefixLock("runs/net"):
        told = json.loads(Path("runs/net.lock").read_text())
        assert (told["host"], told["pid"]) == (socket.gethostname(), os.getpid())
        with pytest.raises(UserError) as caught, PrefixLock("runs/net"):
            pass
        assert f": process {os.getpid()} on host {socket.gethostname()}, since " in str(caught.value)
        with PrefixLock("runs/other"):
            pass
    assert list(Path("runs").iterdir()) == []
    with PrefixLock("runs/net"):
        pass


def test_what_a_killed_run_left_keeps_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, "net"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"process {holder.pid} on host "), PrefixLock("net"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert Path("net.lock").exists()
    with caplog.at_level(logging.INFO, "bpt"), PrefixLock("net"):
        pass
    assert caplog.messages[0].startswith(f"Taking over net.lock: process {holder.pid} on host ")
    assert not Path("net.lock").exists()


def test_leftovers_of_killed_runs_are_removed() -> None:
    """And nothing else: not of other prefixes, nor files that a user named alike."""
    mine = [".net_iter_5.0123456789ab.tmp.caffemodel", "..net_iter_5.0123456789ab.tmp.ba9876543210.tmp.solverstate"]
    others = [".network_iter_5.0123456789ab.tmp.caffemodel", ".net_iter_5.tmp.caffemodel", "net_iter_5.caffemodel"]
    for name in mine + others:
        Path(name).touch()
    with PrefixLock("net"):
        pass
    assert sorted(os.listdir()) == sorted(others)


def test_a_lock_that_says_nonsense() -> None:
    Path("net.lock").write_text("[]")
    with PrefixLock("net"), pytest.raises(UserError), PrefixLock("net"):
        pass


def test_a_link_is_not_followed(folder: Path) -> None:
    Path("precious").write_text("text")
    Path("net.lock").symlink_to("precious")
    with pytest.raises(WriteError), PrefixLock("net"):
        pass
    assert Path("precious").read_text() == "text"


@pytest.mark.parametrize(("text", "holds"), [("snapshot: 5", True), ("snapshot_after_train: false", False)])
def test_those_that_write_hold_it(text: str, holds: bool) -> None:
    Path("net.prototxt").write_text('layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 } } }')
    Path("solver.prototxt").write_text('net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 1')
    with held_for(read_plan("solver.prototxt", [text, 'snapshot_prefix: "net"'])):
        assert Path("net.lock").exists() == holds
