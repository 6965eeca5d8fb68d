"""The campaigns of scripts/chaos, short."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import files, losses
from tests.chaos.files import Run


@pytest.mark.parametrize(
    ("campaign", "runs"), [(losses.campaign, 3), (files.kills, 8), (files.flips, 100), (files.data_flips, 100)]
)
def test_a_few_of_each(
    campaign: Callable[[int, int, int], Iterator[Run]], runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("bpt"), "level", logging.CRITICAL + 1)
    done = 0
    for _, name, run in campaign(1, 0, runs):
        try:
            run()
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        done += 1
    assert done == runs
