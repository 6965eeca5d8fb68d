"""What Linux says of the processor."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from bpt.system.device import processor
from bpt.system.device.processor import processor_identity, processor_name

TEXT = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Processor @ 2.80GHz
stepping\t: 6

processor\t: 1
model name\t: another
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    processor._facts.cache_clear()
    yield
    processor._facts.cache_clear()


def test_name_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: TEXT)
    assert processor_name() == "Intel(R) Xeon(R) Processor @ 2.80GHz"
    assert processor_identity() == "Intel(R) Xeon(R) Processor @ 2.80GHz, cpu family 6, model 106, stepping 6"


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert processor_name() == processor_identity() == "arm"
