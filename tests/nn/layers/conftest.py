"""What the tests of layers share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tests.nn.layers.written import Write
from tests.support.data_readers import Make, Reader
from tests.support.lmdbs import write_images

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


@pytest.fixture
def reader() -> Iterator[Make]:
    """A function that makes readers, which are closed at the end of the test."""
    made: list[Reader] = []

    def make(*args: Any, **kwargs: Any) -> Reader:
        made.append(Reader(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.net.close()


@pytest.fixture
def images(tmp_path: Path) -> str:
    """10 images, numbered by their labels."""
    generator = np.random.default_rng(1)
    return write_images(tmp_path / "db", list(generator.integers(0, 256, (10, 2, 6, 5), np.uint8)))
