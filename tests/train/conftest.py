"""The folders in which whole runs train."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import spread_runs, whole_batches


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small net, its solver and its data."""
    monkeypatch.chdir(tmp_path)
    spread_runs.set_up(tmp_path)
    return tmp_path


@pytest.fixture
def sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a recurrent net, its solver, and batches (time, stream) row by row.

    Each batch is one of sequences that begin with it.
    """
    monkeypatch.chdir(tmp_path)
    whole_batches.set_up(tmp_path)
    return tmp_path
