"""Files that are something else: what other programs write, given as weights, states, means, lists and texts."""

from __future__ import annotations

import random
from pathlib import Path

from bpt.apps.convert.layer_arrays import read_weights
from bpt.apps.pictures.class_names import ClassNames, class_names
from bpt.base.errors import RunError, UserError
from bpt.config.proto.sources import read_net, read_solver
from bpt.data.hdf5_file import listed
from bpt.data.image_source import read_image
from bpt.data.lmdb_file import open_lmdb
from bpt.data.source import read_list
from bpt.data.transform import read_mean
from bpt.train.state.resuming import read_state
from bpt.train.state.weights import open_weights
from tests.fuzz import seeds
from tests.fuzz.engine import Target
from tests.fuzz.mutations import mutate_bytes
from tests.support.foreign_files import OTHERS


class ForeignFiles(Target):
    """A file of another program, or of another kind of Caffe's, whole or damaged, read as each kind of file."""

    name = "foreign"
    short = 150

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        endings = ("caffemodel", "solverstate", "binaryproto")
        own = [content for ending in endings for content in seeds.files(f"**/*.{ending}")]
        self._seeds = [*(content for content, _ in OTHERS.values()), *own]

    def case(self, rng: random.Random) -> bytes:
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(self._seeds)
        if kind < 0.5:  # the start of one file, the end of another
            first, second = rng.choice(self._seeds), rng.choice(self._seeds)
            return first[: rng.randrange(1, min(len(first), 200) + 1)] + second[rng.randrange(len(second)) :][:5000]
        return mutate_bytes(rng, self._seeds)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        database = self.folder / "lmdb"
        database.mkdir(exist_ok=True)
        (database / "data.mdb").write_bytes(case)
        refused: Exception | None = None
        for read in (
            _weights, read_weights, read_state, read_mean, read_net, read_solver, _lines, listed, _image, _names,
            lambda _: open_lmdb(str(database)).close(),
        ):  # fmt: skip
            try:
                read(path)
            except (UserError, RunError) as error:
                refused = error
        if refused:
            raise refused


def _weights(path: str) -> None:
    with open_weights(path) as layers:
        for blobs in layers.values():
            for blob in blobs.values():
                blob.check()


def _lines(path: str) -> None:
    read_list(path, "that lists images")


def _image(path: str) -> None:
    read_image(path, 3)


def _names(path: str) -> ClassNames:
    return class_names(path, 3)


TARGETS = (ForeignFiles,)
