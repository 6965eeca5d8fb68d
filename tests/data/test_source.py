"""The hint at a slash that a root folder's name lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.data.source import slash_hint, slash_remedy


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set_0.png").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("root", "remedy"), [("set", ', so write "set/"'), ("set/", ""), ("no", ""), ("", "")])
def test_remedy(root: str, remedy: str) -> None:
    assert slash_remedy(root) == remedy
    hint = f'; paths begin with the root folder as it is, "{root}"{remedy}' if remedy else ""
    assert slash_hint(root, "a.png") == hint


@pytest.mark.parametrize("name", ["/a.png", "_0.png"])
def test_no_slash_is_missing(name: str) -> None:
    """The second image is there, and has another fault."""
    assert slash_hint("set", name) == ""
