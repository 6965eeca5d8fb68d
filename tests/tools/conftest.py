"""Runs the programs of ``tools/`` in this process."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from tests.cli.conftest import Outcome

Tool = Callable[..., Outcome]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """A function that runs the tool of the given name with the given words."""

    def run(name: str, *words: object) -> Outcome:
        capsys.readouterr()
        status = importlib.import_module(f"tools.{name}").main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run
