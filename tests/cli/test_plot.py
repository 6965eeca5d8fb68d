"""``bpt plot`` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bpt
from tests.support.paths import GOLDEN

LOG = str(GOLDEN / "cli" / "train_from_weights.stderr.txt")


def test_a_figure(bpt: Bpt, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "a.png"
    outcome = bpt("plot", f"--output={figure}", "--log", LOG, "-log", LOG, "--against=seconds")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{figure}\n", "")
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_log_of_a_run_of_ones_own(bpt: Bpt, inputs: Path) -> None:
    pytest.importorskip("matplotlib")
    done = bpt("train", "--solver=solver.prototxt", "--set", "max_iter: 20 snapshot: 0 snapshot_after_train: false")
    assert done.status == 0
    (inputs / "own.log").write_text(done.err)
    assert bpt("plot", "--output=own.svg", "--log=own.log").status == 0
    assert (inputs / "own.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "bpt plot needs --output: the figure to write"),
        (["--output=a.png"], "bpt plot needs --log: what a run wrote to stderr"),
        (["--output=a.jpg", f"--log={LOG}"], "a.jpg: figures are written to files that end in .png or .svg"),
        (["--output=a.png", "--log=none.log"], "none.log: no such file"),
    ],
)
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    pytest.importorskip("matplotlib")
    outcome = bpt("plot", *words)
    assert outcome.error == message
    assert outcome.status == 2
