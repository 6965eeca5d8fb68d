"""What is said of the MPI library."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.comm.serial import SerialCommunicator
from bpt.doctor import mpi
from bpt.doctor.findings import Kind
from bpt.doctor.mpi import check_mpi
from bpt.doctor.ranks import Ranks
from tests.doctor.world import on_hosts, only, same, texts_of
from tests.doubles.thread_ranks import ThreadCommunicator

GOOD = {"library": "X MPI 4", "standard": "MPI 4.0", "threads": "MPI_THREAD_MULTIPLE", "fault tolerance": "on"}


def describe(monkeypatch: pytest.MonkeyPatch, *facts: dict[str, str]) -> None:
    """Let rank r be described by ``facts[r]``."""
    monkeypatch.setattr(ThreadCommunicator, "describe", lambda comm: facts[comm.rank])


def test_one_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone = Ranks(SerialCommunicator(), ("a",))
    monkeypatch.setattr(mpi, "find_spec", lambda name: name)
    monkeypatch.setattr(mpi.shutil, "which", lambda name: f"/bin/{name}")
    assert "mpirun -n 4 bpt doctor" in only(check_mpi(alone)).remedy
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    monkeypatch.setattr(mpi.shutil, "which", lambda name: None)
    monkeypatch.setattr(mpi.sys, "executable", str(tmp_path / "python"))
    finding = only(check_mpi(alone))
    assert finding.kind is Kind.NOTE
    assert finding.text.endswith("so MPI is not used; mpi4py and mpirun could not be found here")
    assert "pip install 'bpt[mpi]'" in finding.remedy


def test_a_good_library(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, GOOD, GOOD)
    section = same(on_hosts("ab", check_mpi))
    assert [finding.kind for finding in section.findings] == [Kind.OK] * 3
    assert section.findings[0].text == "X MPI 4, which follows the standard MPI 4.0; 2 ranks"


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = GOOD | {"threads": "MPI_THREAD_SINGLE", "fault tolerance": "off"}
    describe(monkeypatch, poor)
    section = same(on_hosts("a", check_mpi))
    assert [finding.kind for finding in section.findings] == [Kind.OK, Kind.NOTE, Kind.WARNING, Kind.NOTE]
    assert section.findings[1].text == "there is one rank only"
    assert "MPI_THREAD_SINGLE" in section.findings[2].text


def test_another_library_on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, GOOD, GOOD, GOOD | {"library": "X MPI 3", "standard": "MPI 3.1"})
    section = same(on_hosts("aab", check_mpi))
    assert texts_of(section, Kind.PROBLEM) == [
        "rank 2 on host b: another MPI than ranks 0-1 on host a, X MPI 4: library X MPI 3, standard MPI 3.1"
    ]
