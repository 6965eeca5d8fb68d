"""The data and the folders of jobs over MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from scripts.make_synthetic import images
from tests.mpi.check_ranks import SIDES
from tests.mpi.outer_jobs import write


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the images of each net of ``check_ranks``."""
    folder = tmp_path_factory.mktemp("data")
    for net, side in SIDES.items():
        shape = (1 if net == "lenet" else 3, side, side)
        with LmdbWriter(folder / f"{net}_lmdb") as writer:
            for image, label in images(23, shape, 10, seed=1, part=0):
                writer.put(encode_datum(image, label))
    return folder


@pytest.fixture
def outer_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, where ranks of the outer layer start, with all that they need."""
    folder = write(tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder
