"""Where the user's cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.user_cache import cache_folder


def test_as_the_specification_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "bpt"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == tmp_path / "home" / ".cache" / "bpt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / "home" / ".cache" / "bpt"


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() is None
