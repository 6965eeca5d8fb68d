"""Fixtures that run ``bpt`` and the programs of ``tools/`` in this process; ``conftest.py`` gives them to all tests."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bpt.cli.main import main
from tests.support.paths import GOLDEN


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line that says what went wrong; there must be exactly one, and no traceback."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("error: ")


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that ends well prints."""
    capsys.readouterr()
    status = main(words)
    done = capsys.readouterr()
    assert status == 0, done.err
    return done.out


Bpt = Callable[..., Outcome]
Tool = Callable[..., Outcome]


@pytest.fixture
def bpt(capsys: pytest.CaptureFixture[str]) -> Bpt:
    """A function that runs ``bpt`` with the given words."""

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        status = main(words)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of Caffe's inputs; the current folder during the test."""
    folder = tmp_path / "inputs"
    shutil.copytree(GOLDEN / "cli" / "inputs", folder)
    for product in folder.glob("lenet_*_iter_*"):
        product.chmod(0o644)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """A function that runs the tool of the given name with the given words."""

    def run(name: str, *words: object) -> Outcome:
        capsys.readouterr()
        status = importlib.import_module(f"tools.{name}").main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
