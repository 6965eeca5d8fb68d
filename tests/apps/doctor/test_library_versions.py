"""Versions of programs and of MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpt
from bpt.apps.doctor import library_versions
from bpt.apps.doctor import library_versions as versions
from bpt.apps.doctor.findings import Ranks, Severity
from bpt.apps.doctor.library_versions import check_mpi, check_versions, source_digest, versions_here
from bpt.system.comm.serial import SerialCommunicator
from tests.apps.doctor.world import on_hosts, only, same, texts_of, this_rank
from tests.support.doubles.thread_ranks import ThreadCommunicator

HERE = {"Python": "3.10.1", "bpt": "1 (source 00)", "torch": "2.5", "numpy": "2.0", "mpi4py": "4.0", "lmdb": "1.4"}


def install(monkeypatch: pytest.MonkeyPatch, *changes: dict[str, str]) -> None:
    """Let rank r have HERE with ``changes[r]``."""
    monkeypatch.setattr(versions, "versions_here", lambda: HERE | changes[this_rank()])


def test_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {})
    section, same_program = same(on_hosts("ab", check_versions))
    assert same_program
    assert texts_of(section, Severity.OK) == [
        "on all ranks: Python 3.10.1, bpt 1 (source 00), torch 2.5, numpy 2.0, mpi4py 4.0, lmdb 1.4"
    ]


def test_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {"torch": "2.4"}, {"torch": "2.4", "lmdb": "not installed"})
    section, same_program = same(on_hosts("abc", check_versions))
    assert same_program  # they understand each other
    assert texts_of(section, Severity.PROBLEM) == ["ranks 1-2 on hosts b, c: torch 2.4; rank 0 on host a: 2.5"]
    assert texts_of(section, Severity.WARNING) == ["rank 2 on host c: lmdb not installed; ranks 0-1 on hosts a, b: 1.4"]
    assert texts_of(section, Severity.OK) == ["on all ranks: Python 3.10.1, bpt 1 (source 00), numpy 2.0, mpi4py 4.0"]


def test_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {"bpt": "1 (source 01)"})
    section, same_program = same(on_hosts("ab", check_versions))
    assert not same_program
    assert texts_of(section, Severity.PROBLEM) == [
        "rank 1 on host b: bpt 1 (source 01); rank 0 on host a: 1 (source 00)"
    ]


def test_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = versions_here()
    assert here["bpt"] == f"{bpt.__version__} (source {source_digest()})"
    assert here["protobuf"][0].isdigit()
    before = source_digest()
    (tmp_path / "other.py").write_text("1")
    monkeypatch.setattr(library_versions, "PACKAGE", tmp_path)
    assert source_digest() != before


GOOD = {"library": "X MPI 4", "standard": "MPI 4.0", "threads": "MPI_THREAD_MULTIPLE", "fault tolerance": "on"}
GOOD |= {"device memory": "none"}


def describe(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, str]) -> None:
    """Let rank r be described by ``facts[r]``."""
    monkeypatch.setattr(ThreadCommunicator, "describe", lambda comm: facts[comm.rank])


def test_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone = Ranks(SerialCommunicator(), ("a",))
    monkeypatch.setattr(versions, "find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert "mpirun -n 4 bpt doctor" in only(check_mpi(alone)).remedy
    monkeypatch.setattr(versions, "find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    finding = only(check_mpi(alone))
    assert finding.kind is Severity.NOTE
    assert finding.text.endswith("so MPI is not used; mpi4py and mpirun could not be found here")
    assert "pip install 'bpt[mpi]'" in finding.remedy


def test_a_good_library(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, GOOD, GOOD)
    section = same(on_hosts("ab", check_mpi))
    assert [finding.kind for finding in section.findings] == [Severity.OK] * 4
    assert "it is not CUDA-aware" in section.findings[3].text
    assert section.findings[0].text == "X MPI 4, which follows the standard MPI 4.0; 2 ranks"


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = GOOD | {"threads": "MPI_THREAD_SINGLE", "fault tolerance": "off", "device memory": "CUDA"}
    describe(monkeypatch, poor)
    section = same(on_hosts("a", check_mpi))
    assert [finding.kind for finding in section.findings] == [
        Severity.OK,
        Severity.NOTE,
        Severity.WARNING,
        Severity.NOTE,
        Severity.OK,
    ]
    assert section.findings[1].text == "there is only one rank"
    assert "MPI_THREAD_SINGLE" in section.findings[2].text
    assert section.findings[4].text.startswith("it takes buffers in device memory (CUDA); bpt gives it buffers in the")


def test_another_library_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, GOOD, GOOD, GOOD | {"library": "X MPI 3", "standard": "MPI 3.1"})
    section = same(on_hosts("aab", check_mpi))
    assert texts_of(section, Severity.PROBLEM) == [
        "rank 2 on host b: another MPI than ranks 0-1 on host a, X MPI 4: library X MPI 3, standard MPI 3.1"
    ]
