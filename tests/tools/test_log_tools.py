"""``tools/parse_log.py`` and ``tools/plot_training_log.py`` on logs of a real Caffe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Tool
from tests.support.paths import GOLDEN

LOG = GOLDEN / "cli" / "train_from_weights.stderr.txt"


def test_tables(tool: Tool, tmp_path: Path) -> None:
    outcome = tool("parse_log", LOG, tmp_path, "--verbose")
    assert outcome.status == 0
    assert outcome.out == f"Wrote {tmp_path}/{LOG.name}.train\nWrote {tmp_path}/{LOG.name}.test\n"
    test = (tmp_path / f"{LOG.name}.test").read_text().splitlines()
    assert test == [
        "NumIters,Seconds,LearningRate,accuracy,loss",
        "0.0,0.015566,0.01,0.1,2.27805",
        "20.0,0.156667,0.00985258,0.21,2.17153",
        "40.0,0.298887,0.00971013,0.64,1.33874",
        "60.0,0.437784,0.00964069,0.83,0.480617",
    ]
    train = (tmp_path / f"{LOG.name}.train").read_text().splitlines()
    assert train[:2] == ["NumIters,Seconds,LearningRate,loss", "0.0,0.023145,0.01,2.28717"]
    assert len(train) == 7


def test_another_delimiter(tool: Tool, tmp_path: Path) -> None:
    outcome = tool("parse_log", LOG, tmp_path, "--delimiter", "\\t")
    assert (outcome.status, outcome.out) == (0, "")
    assert (tmp_path / f"{LOG.name}.test").read_text().startswith("NumIters\tSeconds\t")
    assert tool("parse_log", LOG, tmp_path, "--delimiter=;;").error == '--delimiter takes one character, found ";;"'


def test_tables_without_a_folder(tool: Tool, tmp_path: Path) -> None:
    for log in (LOG, "none.log"):  # the place is looked at first
        outcome = tool("parse_log", log, tmp_path / "no")
        assert outcome.status == 2
        assert f'cannot be written: there is no folder "{tmp_path}/no"' in outcome.error


@pytest.mark.parametrize("words", [["out.png", LOG], ["out.svg", LOG, LOG], ["0", "out.png", LOG], ["7", "o.svg", LOG]])
def test_figures(words: list[str], tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    outcome = tool("plot_training_log", *words)
    [written] = tmp_path.iterdir()
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{written.name}\n", "")
    assert written.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no/out.png", "none.log"], 'no/out.png: cannot be written: there is no folder "no"'),
        (["8", "out.png", LOG], "there is no chart type 8 (0: Test accuracy vs. Iters; "),
        (["out.pdf", LOG], "out.pdf: figures are written to files that end in .png or .svg"),
        (["out.png"], "name at least one log"),
        (["out.png", "none.log"], "none.log: no such file"),
        (["out.png", __file__], f"{__file__}: is no log of training"),
    ],
)
def test_mistakes(words: list[str], message: str, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    outcome = tool("plot_training_log", *words)
    assert outcome.error.startswith(message)
    assert outcome.status == 2
    assert not list(tmp_path.iterdir())
