"""The folder in which runs of the halving net train."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.halving_net import NET, SOLVER


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the net and its solver."""
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path
