"""What dead jobs have left: found, and removed, and nothing else."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bpt.apps.doctor import leftovers
from bpt.apps.doctor.findings import Ranks, Section, Severity
from bpt.system.comm.base import Communicator
from bpt.train.state.prefix_lock import PrefixLock
from tests.support.doubles.thread_ranks import run_ranks

HOST = socket.gethostname().split(".")[0]
AGO = 1000.0


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the test in place of those for shared memory and temporary files; files are old in them."""
    for name in ("memory", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path / "memory")
    monkeypatch.setattr(leftovers, "folder_of_windows", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(leftovers, "YOUNG", -AGO)
    if leftovers.find() != [] or leftovers._used_files() is None:
        pytest.skip("not all processes can be seen here")


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def found() -> list[str]:
    return [str(left.path.relative_to(Path.cwd())) for left in leftovers.find()]


def test_shared_memory_of_this_host() -> None:
    for name in (f"sm_segment.{HOST}.0.9c810001.1", f"osc_sm.{HOST}.1a2b.0.7", "sm_segment.other.0.9c810001.1", "x"):
        Path("memory", name).write_bytes(bytes(5000))
    Path("temporary", f"sm_segment.{HOST}.0.9c810001.1").touch()
    os.symlink("x", f"memory/sm_segment.{HOST}.0.1.1")
    assert found() == [f"memory/osc_sm.{HOST}.1a2b.0.7", f"memory/sm_segment.{HOST}.0.9c810001.1"]


def test_what_a_process_uses_is_left_alone() -> None:
    name = f"memory/sm_segment.{HOST}.0.9c810001.1"
    Path(name).write_bytes(bytes(5000))
    with open(name, "r+b") as file:
        assert found() == []
        memory = mmap.mmap(file.fileno(), 5000)
    assert found() == []  # mapped, and not open
    memory.close()
    assert found() == [name]


def test_what_is_young_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(f"memory/sm_segment.{HOST}.0.9c810001.1").touch()
    monkeypatch.setattr(leftovers, "YOUNG", 60.0)
    assert found() == []


def test_folders_of_launchers() -> None:
    dead = dead_process()
    for name in (f"ompi.{dead}", f"ompi.{os.getpid()}", "ompi.host.0", "other.5"):
        Path("temporary", name, "0").mkdir(parents=True)
        Path("temporary", name, "0", "contact").touch()
    Path("temporary", f"prte.{dead}").touch()  # no folder
    assert found() == [f"temporary/ompi.{dead}"]
    with open(f"temporary/ompi.{dead}/0/contact"):
        assert found() == []


def check(clean: bool, prefix: str = "", ranks: int = 1) -> Section | None:
    def run(comm: Communicator) -> Section | None:
        return leftovers.check_leftovers(Ranks.meet(comm), prefix, clean)

    return run_ranks(ranks, run)[0]


def test_told_and_cleaned_once_a_host() -> None:
    Path(f"memory/sm_segment.{HOST}.0.9c810001.1").write_bytes(bytes(2**20))
    Path("temporary/bpt_mean_x1_y").touch()
    section = check(clean=False, ranks=3)
    assert section
    (finding,) = section.findings
    assert finding.kind is Severity.NOTE
    assert finding.text.startswith(f"host {socket.gethostname()}: dead jobs have left 1.0 MiB: ")
    assert "bpt_mean_x1_y" in finding.text
    section = check(clean=True, ranks=3)
    assert section
    assert [finding.kind for finding in section.findings] == [Severity.OK]
    assert not list(Path("memory").iterdir())
    assert not list(Path("temporary").iterdir())
    assert check(clean=False) is None
    section = check(clean=True)
    assert section
    assert [finding.text for finding in section.findings] == ["nothing"]


def test_a_stale_lock_goes_and_a_live_one_stays() -> None:
    Path("snap.lock").write_text('{"host": "a", "pid": 1, "since": "then"}\n')
    section = check(clean=False, prefix="snap")
    assert section
    assert section.findings[0].text == "snap.lock: files of a running job, or leftovers of a dead one"
    assert check(clean=True, prefix="snap")
    assert not Path("snap.lock").exists()
    with PrefixLock("snap"):
        section = check(clean=True, prefix="snap")
        assert section
        assert section.findings[0].kind is Severity.PROBLEM
        assert "a live run writes its snapshots there" in section.findings[0].text
        assert Path("snap.lock").exists()
