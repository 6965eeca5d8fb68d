"""Lists of images, HDF5 files, windows and volumes, logs of training, and JSON files that people may edit."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.fuzz.engine import Target, run_cases, run_one
from tests.fuzz.targets.lists import TARGETS, Hdf5Files, Hdf5Lists, ImageLists, Logs, VolumeLists, WindowFiles


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_lists_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))


def _huge(file: h5py.File) -> None:
    """Rows of terabytes, none of which are there."""
    file.create_dataset("data", (2**40, 3), np.float32, chunks=(1024, 3))
    file.create_dataset("label", (2**40,), np.float32, chunks=(1024,))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ImageLists, b"a " * 10**5),
        (ImageLists, b"a" * 10**5 + b" 1"),
        (ImageLists, b"a " + b"1" * 10**6),
        (Hdf5Lists, b"a" * 10**5),
        (WindowFiles, b"# 0\nimages/im0.png\n3\n8\n8\n999999999\n1 0.9 0 0 3 3\n"),
        (WindowFiles, b"# 0\n" + b"i" * 10**5 + b"\n3\n8\n8\n1\n1 0.9 0 0 3 3\n"),
        (VolumeLists, b"a " * 10**5),
        (VolumeLists, b"a" + b" " * 10**5 + b"b"),
        (VolumeLists, b"a " + b"1" * 10**6),
        (Logs, b"Iteration 1 (" * 10**5),
        (Logs, b"Iteration 1\n" + b"Test net output #1: " * 10**4),
    ],
    ids=range(11),
)
def test_lists_with_long_lines_and_large_numbers(kind: type[Target], text: bytes, tmp_path: Path) -> None:
    assert run_one(kind(tmp_path), text).refused


def test_hdf5_data_that_announces_more_than_memory_holds(tmp_path: Path) -> None:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        _huge(file)
    assert run_one(Hdf5Files(tmp_path), content.getvalue()).refused
