"""What is said of packages that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpt
from bpt.doctor import versions
from bpt.doctor.findings import Kind
from bpt.doctor.versions import check_versions, source_digest, versions_here
from tests.doctor.world import on_hosts, same, texts_of, this_rank

HERE = {"Python": "3.10.1", "bpt": "1 (source 00)", "torch": "2.5", "numpy": "2.0", "mpi4py": "4.0", "lmdb": "1.4"}


def install(monkeypatch: pytest.MonkeyPatch, *changes: dict[str, str]) -> None:
    """Let rank r have HERE with ``changes[r]``."""
    monkeypatch.setattr(versions, "versions_here", lambda: HERE | changes[this_rank()])


def test_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {})
    section, same_program = same(on_hosts("ab", check_versions))
    assert same_program
    assert texts_of(section, Kind.OK) == [
        "on all ranks: Python 3.10.1, bpt 1 (source 00), torch 2.5, numpy 2.0, mpi4py 4.0, lmdb 1.4"
    ]


def test_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {"torch": "2.4"}, {"torch": "2.4", "lmdb": "not installed"})
    section, same_program = same(on_hosts("abc", check_versions))
    assert same_program  # they understand each other
    assert texts_of(section, Kind.PROBLEM) == ["ranks 1-2 on hosts b, c: torch 2.4; rank 0 on host a: 2.5"]
    assert texts_of(section, Kind.WARNING) == ["rank 2 on host c: lmdb not installed; ranks 0-1 on hosts a, b: 1.4"]
    assert texts_of(section, Kind.OK) == ["on all ranks: Python 3.10.1, bpt 1 (source 00), numpy 2.0, mpi4py 4.0"]


def test_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {}, {"bpt": "1 (source 01)"})
    section, same_program = same(on_hosts("ab", check_versions))
    assert not same_program
    assert texts_of(section, Kind.PROBLEM) == ["rank 1 on host b: bpt 1 (source 01); rank 0 on host a: 1 (source 00)"]


def test_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = versions_here()
    assert here["bpt"] == f"{bpt.__version__} (source {source_digest()})"
    assert here["protobuf"][0].isdigit()
    before = source_digest()
    (tmp_path / "other.py").write_text("1")
    monkeypatch.setattr(bpt, "__file__", str(tmp_path / "__init__.py"))
    assert source_digest() != before
