"""Figures of logs: names and mistakes. Curves: tests/plot/test_log_figure.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bpt.errors import UsageError
from bpt.plot.plot_log import plot_logs
from tests.draw.test_drawing import texts
from tests.golden_cases import GOLDEN

pytest.importorskip("matplotlib")
LOG = GOLDEN / "cli" / "train_from_weights.stderr.txt"


def test_logs_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        shutil.copy(LOG, tmp_path / folder / "train.log")
    plot_logs("a.svg", ["one/train.log", "./two/train.log"])
    assert {"one/train.log", "two/train.log"} <= set(texts(tmp_path / "a.svg"))
    plot_logs("a.svg", ["one/train.log"])
    assert "best 0.83 at 60" in texts(tmp_path / "a.svg")


def test_a_chart_type_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"there is no chart type -1 \(0: Test accuracy vs\. Iters; 1: "):
        plot_logs("a.svg", [str(LOG)], chart=-1)
