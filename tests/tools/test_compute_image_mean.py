"""``tools/compute_image_mean.py``: byte for byte what Caffe's writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.commands import Tool
from tests.support.lmdbs import write_images
from tests.support.paths import GOLDEN


@pytest.mark.parametrize("name", ["digits_train", "color"])
def test_caffes_files(name: str, tool: Tool, tmp_path: Path) -> None:
    folder = GOLDEN / "lmdb"
    outcome = tool("compute_image_mean", "-backend=lmdb", folder / f"{name}_lmdb", tmp_path / "mean")
    assert (outcome.status, outcome.err) == (0, "")
    assert (tmp_path / "mean").read_bytes() == (folder / f"{name}_mean.binaryproto").read_bytes()


def test_the_mean_of_each_channel(tool: Tool, tmp_path: Path) -> None:
    first = np.stack([np.full((2, 2), 10, np.uint8), np.full((2, 2), 0, np.uint8)])
    other = np.stack([np.full((2, 2), 20, np.uint8), np.full((2, 2), 3, np.uint8)])
    outcome = tool("compute_image_mean", write_images(tmp_path / "lmdb", [first, other]))
    assert outcome.out.splitlines() == [
        "Processed 2 files.", "Number of channels: 2", "mean_value channel [0]: 15", "mean_value channel [1]: 1.5",
    ]  # fmt: skip


def test_images_of_two_sizes(tool: Tool, tmp_path: Path) -> None:
    images = [np.zeros((1, 2, 3), np.uint8), np.zeros((1, 3, 2), np.uint8)]
    outcome = tool("compute_image_mean", write_images(tmp_path / "lmdb", images), tmp_path / "mean")
    assert outcome.status == 1
    assert 'record "00000001" has the shape (1, 3, 2), but the first one has (1, 2, 3)' in outcome.error
    assert not (tmp_path / "mean").exists()


def test_a_missing_folder_is_told_before_the_work(tool: Tool, tmp_path: Path) -> None:
    outcome = tool("compute_image_mean", GOLDEN / "lmdb" / "color_lmdb", tmp_path / "no" / "mean")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.error.startswith(f'{tmp_path}/no/mean: cannot be written: there is no folder "{tmp_path}/no"')


def test_no_database(tool: Tool, tmp_path: Path) -> None:
    assert tool("compute_image_mean", tmp_path / "none").status == 2
    assert "LevelDB" in tool("compute_image_mean", "--backend", "leveldb", tmp_path).error
