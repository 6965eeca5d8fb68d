"""Processes that share memory: which of them live, and what a rank that waits makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import pytest

from bpt.comm import window
from bpt.comm.processes import Peers, ProcessWindow, identity
from bpt.errors import LostRankError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for handles of processes")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, and return when it is dead but not yet reaped, as under a launcher that is busy."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def of(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    return process.pid, identity()[1]


@linux
def test_a_process_is_gone_when_it_has_ended_reaped_or_not(sleeper: subprocess.Popen[bytes]) -> None:
    peers = Peers({3: identity(), 5: of(sleeper)})
    assert peers.gone() == []
    end(sleeper)
    assert peers.gone() == [5]
    sleeper.wait()
    assert peers.gone() == [5]
    peers.close()
    assert peers.gone() == []


def test_where_there_are_no_handles_a_process_is_gone_when_it_is_reaped(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: int) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    peers = Peers({3: identity(), 5: of(sleeper)})
    assert peers.gone() == []
    sleeper.kill()
    sleeper.wait()
    assert peers.gone() == [5]
    peers.close()


def test_another_user_s_process_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, signal: int = 0) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    monkeypatch.setattr(os, "kill", refuse)
    assert Peers({5: identity()}).gone() == []


def test_processes_of_another_namespace_are_not_asked(sleeper: subprocess.Popen[bytes]) -> None:
    """Their ids mean other processes here, or none."""
    process, space = of(sleeper)
    peers = Peers({5: (process, space + 1)})
    sleeper.kill()
    sleeper.wait()
    assert peers.gone() == []


@linux
def test_handles_are_closed(sleeper: subprocess.Popen[bytes]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    peers = Peers({5: of(sleeper)})
    assert len(os.listdir("/proc/self/fd")) == before + 1
    peers.close()
    assert len(os.listdir("/proc/self/fd")) == before


class Win:
    """Notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        return lambda: self.calls.append(name)


def window_with(process: subprocess.Popen[bytes], win: Win) -> ProcessWindow:
    part = np.zeros(1, np.uint8)
    peers = Peers({5: of(process)})

    def explain(gone: Sequence[int]) -> LostRankError:
        return LostRankError(f"ranks {gone} are gone", gone)

    return ProcessWindow([part], lambda method: nullcontext(), win, peers, explain)


def test_a_wait_for_a_process_that_ends_names_its_rank(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "_DOUBT", 0.0)
    win, looks = Win(), []

    def done() -> bool:
        looks.append(list(win.calls))
        if len(looks) == 3:
            sleeper.kill()
            sleeper.wait()
        return False

    with pytest.raises(LostRankError, match=r"^ranks \[5\] are gone$"):
        window_with(sleeper, win).wait(done)
    assert len(looks) >= 4
    assert looks[:4] == [["Sync"] * number for number in (1, 2, 3, 4)]  # one before each look


def test_what_a_process_did_before_it_ended_counts(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look comes too early, then the process does its part and ends, then it is looked after."""
    monkeypatch.setattr(window, "_DOUBT", 0.0)
    sleeper.kill()
    looks: list[bool] = []

    def done() -> bool:
        looks.append(len(looks) == 1)
        return looks[-1]

    w = window_with(sleeper, Win())
    sleeper.wait()
    w.wait(done)
    assert looks == [False, True]


def test_free_ends_the_epoch_before_the_window(sleeper: subprocess.Popen[bytes]) -> None:
    win = Win()
    window_with(sleeper, win).Free()
    assert win.calls == ["Unlock_all", "Free"]
