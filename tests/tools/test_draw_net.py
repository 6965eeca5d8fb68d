"""``tools/draw_net.py``: files of every kind, and its flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Tool
from tests.support.paths import PROTOTXT

LENET = PROTOTXT / "lenet" / "deploy.prototxt"
pytestmark = pytest.mark.usefixtures("matplotlib")


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("name", "flags", "start"),
    [
        ("a.svg", [], b"<?xml"),
        ("a.png", ["--rankdir", "TB", "-phase=TEST"], b"\x89PNG\r"),
        ("a.PDF", ["--rankdir=BT", "--display_lrm", "--columns", "2"], b"%PDF-"),
    ],
)
def test_pictures(name: str, flags: list[str], start: bytes, tool: Tool, tmp_path: Path) -> None:
    outcome = tool("draw_net", LENET, tmp_path / name, *flags)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == f"{tmp_path}/{name}: 9 layers in 8 boxes\n"
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    tool("draw_net", LENET, tmp_path / name, *flags)
    assert (tmp_path / name).read_bytes() == first


def test_mistakes(tool: Tool, tmp_path: Path) -> None:
    assert tool("draw_net", LENET, tmp_path / "a.gif").error.endswith("files that end in .svg, .png, .pdf")
    assert tool("draw_net", "none.prototxt", tmp_path / "a.svg").error.startswith("none.prototxt: no such file")
    assert "--rankdir: invalid choice: 'RL'" in tool("draw_net", LENET, tmp_path / "a.svg", "--rankdir=RL").error
    outcome = tool("draw_net", LENET, tmp_path / "nowhere" / "a.svg")
    assert outcome.status == 2
    assert "a.svg: cannot be written: there is no folder" in outcome.error
    assert not list(tmp_path.iterdir())
