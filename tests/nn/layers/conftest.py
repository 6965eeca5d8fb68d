"""What the tests of layers share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest

from tests.nn.layers.written import Write

NUMBERS = count()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the working folder and returns its name, which is new."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(code: str) -> str:
        name = f"written_layers_{next(NUMBERS)}"
        Path(f"{name}.py").write_text(dedent(code))
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("written_layers_"):
            del sys.modules[name]
