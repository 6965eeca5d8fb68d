"""The folder of runs whose gradients are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.runtime.summed_data import SOLVER


@pytest.fixture
def summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the solver of ``summed_data``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path
