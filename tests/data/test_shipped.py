"""Shipment and Spool: records leave an LMDB and arrive at a node as they were."""

from __future__ import annotations

import errno
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import DataError, FileError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.lmdb_file import DatumRecord, LmdbSource
from bpt.data.sampler import Sampler
from bpt.data.shipped import Header, RecordCache, RecordCacheSource, RecordChunk, RecordStream, pack, record_cache_of
from tests.support.lmdbs import write_images, write_records

RECORDS = {f"{index:03d}".encode(): bytes([index]) * (index + 1) for index in range(20)}
ITEMS = [DatumRecord(*item) for item in RECORDS.items()]
FIRST = Header("server/db", 20, ITEMS[0])


def unpack(chunk: RecordChunk) -> Iterator[tuple[int, DatumRecord]]:
    """The records of a chunk with their indices."""
    content = chunk.content.tobytes()
    at = 0
    for index, key, datum in chunk.table.tolist():
        end = at + key + datum
        yield index, DatumRecord(content[at : at + key], content[at + key : end])
        at = end


@pytest.fixture
def source(tmp_path: Path) -> str:
    return write_records(tmp_path / "db", RECORDS)


def contents(parcels: list[RecordChunk]) -> list[tuple[int, DatumRecord]]:
    return [item for chunk in parcels for item in unpack(chunk)]


def test_records_in_two_flat_buffers() -> None:
    chunk = pack([7, 3], [DatumRecord(b"ab", b"cde"), DatumRecord(b"f", b"")])
    assert chunk.table.dtype == np.int64 and chunk.content.dtype == np.uint8
    assert chunk.table.tolist() == [[7, 2, 3], [3, 1, 0]]
    assert chunk.content.tobytes() == b"abcdef"
    assert list(unpack(chunk)) == [(7, DatumRecord(b"ab", b"cde")), (3, DatumRecord(b"f", b""))]


def test_no_records_in_a_parcel() -> None:
    chunk = pack([], [])
    assert (chunk.table.shape, chunk.content.shape, list(unpack(chunk))) == ((0, 3), (0,), [])


def test_the_header(source: str, tmp_path: Path) -> None:
    (tmp_path / "mean").write_bytes(b"mean")
    stream = RecordStream(source, Sampler([20]), str(tmp_path / "mean"))
    header = pickle.loads(pickle.dumps(stream.header))
    stream.close()
    assert header == Header(source, 20, ITEMS[0], b"mean")


def test_runs_are_positions_of_epoch_0(source: str) -> None:
    sampler = Sampler([20], shuffle=True, seed=4, skip=3)
    stream = RecordStream(source, sampler)
    sent = contents(list(stream.pieces([(15, 20), (2, 4)])))
    stream.close()
    order = Sampler([20], shuffle=True, seed=4).indices(0, 20).samples.tolist()
    assert sent == [(index, ITEMS[index]) for index in sorted(order[15:20] + order[2:4])]


def test_pieces_of_some_bytes(source: str) -> None:
    """Record i has i + 1 bytes: a piece ends when it has at least 30."""
    stream = RecordStream(source, Sampler([20]))
    pieces = list(stream.pieces([(0, 20)], size=30))
    none = list(stream.pieces([]))
    stream.close()
    assert [piece.table[:, 0].tolist() for piece in pieces] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [8, 9, 10],
        [11, 12, 13],
        [14, 15],
        [16, 17],
        [18, 19],
    ]
    assert contents(pieces) == list(enumerate(ITEMS))
    assert none == []


def test_records_are_read_while_one_iterates(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = RecordStream(source, Sampler([20]))
    read: list[int] = []
    original = LmdbSource.record
    monkeypatch.setattr(LmdbSource, "record", lambda source, index: read.append(index) or original(source, index))
    next(stream.pieces([(0, 20)], size=1))
    stream.close()
    assert read == [0]


def test_a_mean_file_that_is_missing(source: str) -> None:
    with pytest.raises(FileError, match="no/mean: no such file"):
        RecordStream(source, Sampler([20]), "no/mean")


def test_a_spool_gives_back_what_it_was_sent() -> None:
    with RecordCache(FIRST) as cache:
        assert cache.record(0) == ITEMS[0]
        cache.append(pack([4, 2, 19], [ITEMS[4], ITEMS[2], ITEMS[19]]))
        cache.append(pack([], []))
        cache.append(pack([3, 2], [ITEMS[3], ITEMS[2]]))
        assert {index: cache.record(index) for index in (19, 4, 0, 3, 2)} == {i: ITEMS[i] for i in (0, 2, 3, 4, 19)}
        with pytest.raises(DataError, match="server/db: record 5 of 20 was not sent to this node"):
            cache.record(5)


def test_a_spool_reads_like_the_lmdb(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    path = write_images(tmp_path / "db", list(generator.integers(0, 256, (6, 3, 4, 5), np.uint8)))
    stream = RecordStream(path, Sampler([6]))
    lmdb = LmdbSource(path)
    with RecordCache(stream.header) as cache:
        for piece in stream.pieces([(1, 6)], size=100):
            cache.append(piece)
        copy = RecordCacheSource(cache)
        assert (len(copy), copy.path) == (6, path)
        for index in (5, 0, 3):
            expected, sample = lmdb.read(index), copy.read(index)
            assert (sample.key, sample.label) == (expected.key, expected.label)
            np.testing.assert_array_equal(sample.image, expected.image)
        copy.close()
    lmdb.close()
    stream.close()


def test_a_bad_record_names_the_servers_path() -> None:
    with RecordCache(FIRST) as cache, pytest.raises(DataError, match='server/db: record "000": not a Datum'):
        RecordCacheSource(cache).read(0)


def test_spools_are_found_by_name_until_they_are_closed() -> None:
    with RecordCache(FIRST) as first, RecordCache(FIRST) as second:
        assert first.name != second.name
        assert record_cache_of(first.name) is first
        assert record_cache_of(second.name) is second
        assert record_cache_of("server/db") is None
    assert record_cache_of(first.name) is None


def test_the_disk_gets_its_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records never have a name; the mean image has one until the cache is closed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RecordCache(FIRST):
        assert not list(tmp_path.iterdir())
    with RecordCache(Header("server/db", 20, ITEMS[0], b"mean")):
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"mean"]
    assert not list(tmp_path.iterdir())


def test_redirect() -> None:
    transform = {"mean_file": "b", "scale": 2}
    meant = pb.LayerParameter(data_param=pb.DataParameter(source="a", shuffle=True), transform_param=transform)
    plain = pb.LayerParameter(data_param=pb.DataParameter(source="a"))
    with RecordCache(Header("server/db", 20, ITEMS[0], b"mean")) as cache:
        for layer in (meant, plain):
            cache.redirect(layer)
            assert layer.data_param.source == cache.name
        assert Path(meant.transform_param.mean_file).read_bytes() == b"mean"
    assert meant.data_param.shuffle and meant.transform_param.scale == 2
    assert not plain.HasField("transform_param")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RecordCache(FIRST) as cache:
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(WriteError) as caught:
            cache.append(pack([1], [ITEMS[1]]))
        assert str(caught.value) == (
            f"{tmp_path}: could not be written: No space left on device; "
            "set TMPDIR to a folder with room for the records that this node trains"
        )
        assert cache.record(0) == ITEMS[0]


def test_writes_that_come_short(monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: original(file, bytes(data[:5]), at))
    with RecordCache(FIRST) as cache:
        cache.append(pack(range(20), ITEMS))
        assert [cache.record(index) for index in range(20)] == ITEMS
