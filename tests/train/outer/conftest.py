"""The folder in which the outer layer trains."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small net, its solver and its data; nothing draws figures there."""
    monkeypatch.setattr("bpt.train.outer.serving.draw", lambda record, folder: [])  # takes seconds
    return folder
