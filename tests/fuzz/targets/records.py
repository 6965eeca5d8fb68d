"""Records of LMDBs: Datums, raw, of floats and encoded, and what is made of them before they are a batch."""

from __future__ import annotations

import random
from functools import cache
from itertools import islice
from typing import Any

import lmdb
import numpy as np

from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import DatumRecord, LmdbSource
from bpt.nn.net_graph import build_graph_of
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net
from tests.fuzz.engine import Target
from tests.fuzz.messages import Changer
from tests.fuzz.mutations import ODD_TEXTS, mutate_bytes
from tests.support.lmdbs import write_records
from tests.support.paths import GOLDEN

_NET = """
layer { name: "d" type: "Data" top: "x" top: "l" data_param { source: "case_lmdb" batch_size: 2 prefetch: 1 } }
"""


@cache
def _records() -> tuple[bytes, ...]:
    """Serialised Datums: the first of each recorded LMDB, and small ones."""
    found: list[Any] = []
    for folder in ("color_lmdb", "encoded_lmdb", "float_lmdb"):
        path = str(GOLDEN / "data" / folder)
        with lmdb.open(path, readonly=True, lock=False) as environment, environment.begin() as transaction:
            found += map(bytes, islice(transaction.cursor().iternext(keys=False), 3))
    small = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    found += [encode_datum(image, 1).SerializeToString() for image in (small, small.astype(np.float32))] * 2
    return tuple(found)


def _case(rng: random.Random) -> bytes:
    if rng.random() < 0.6:
        return mutate_bytes(rng, _records())
    datum = pb.Datum.FromString(rng.choice(_records()))
    Changer(lambda rng, field: rng.choice(ODD_TEXTS)).change(rng, datum, rng.choice((1, 2, 4)))
    return datum.SerializeToString()


class Datums(Target):
    """Datums decoded as a Data layer does it, in each number of channels."""

    name = "datum"
    suffix = ".datum"

    def case(self, rng: random.Random) -> bytes:
        return _case(rng)

    def run(self, case: bytes) -> None:
        for channels in (1, 3, None):
            sample = DatumRecord(b"key", case).sample("lmdb", channels)
            assert sample.image.ndim == 3 and sample.image.size


class Databases(Target):
    """LMDBs of three records, one of them odd or all, read by a net."""

    name = "lmdb"
    short = 60
    suffix = ".datum"

    def case(self, rng: random.Random) -> bytes:
        return _case(rng)

    def run(self, case: bytes) -> None:
        path = self.folder / "case_lmdb"
        for file in path.glob("*"):
            file.unlink()
        if path.exists():
            path.rmdir()
        good = case if len(case) % 2 else _records()[len(case) % len(_records())]
        write_records(path, {b"a": good, b"b": case, b"c": good})
        LmdbSource(str(path)).close()
        net = self.folder / "net.prototxt"
        net.write_text(_NET)
        made = make_net(build_graph_of(file_plan(str(net), pb.TRAIN)), CPU)
        try:
            for _ in range(2):
                made.draw()
        finally:
            made.close()


TARGETS = (Datums, Databases)
