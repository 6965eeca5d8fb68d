"""LmdbWriter: what it writes, and that it never leaves half of it."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np
import pytest

from bpt.data.datum import encode_datum
from bpt.data.lmdb_writer import LmdbWriter
from bpt.errors import FileError, WriteError
from bpt.proto import bpt_pb2 as pb


def records(path: Path) -> dict[bytes, pb.Datum]:
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return {key: pb.Datum.FromString(value) for key, value in transaction.cursor()}


def test_writes_datums_under_numbers_and_given_keys(tmp_path: Path) -> None:
    path = tmp_path / "new" / "db"
    with LmdbWriter(path) as writer:
        writer.put(encode_datum(np.arange(6, dtype=np.uint8).reshape(1, 2, 3), 4))
        writer.put(encode_datum(np.array([[[0.5]], [[-1.5]]], np.float32), 7), "00000001_cat.png")
        writer.put(pb.Datum(label=9))
        assert len(writer) == 3
    assert records(path) == {
        b"00000000": pb.Datum(channels=1, height=2, width=3, data=bytes(range(6)), label=4),
        b"00000001_cat.png": pb.Datum(channels=2, height=1, width=1, float_data=[0.5, -1.5], label=7),
        b"00000002": pb.Datum(label=9),
    }
    assert [entry.name for entry in path.parent.iterdir()] == ["db"]
    assert [entry.name for entry in path.iterdir()] == ["data.mdb"]


def test_grows_beyond_its_first_size(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096  # 1 MiB; the file starts with room for 16
    with LmdbWriter(tmp_path / "db") as writer:
        for label in range(40):
            writer.put(pb.Datum(data=data, label=label))
    written = records(tmp_path / "db")
    assert [(datum.label, datum.data == data) for datum in written.values()] == [(label, True) for label in range(40)]


def test_more_records_than_one_commit(tmp_path: Path) -> None:
    with LmdbWriter(tmp_path / "db") as writer:
        for label in range(2345):
            writer.put(pb.Datum(label=label))
    assert [datum.label for datum in records(tmp_path / "db").values()] == list(range(2345))


def test_overwrites_only_when_told(tmp_path: Path) -> None:
    for overwrite, label in ((False, 1), (True, 2)):
        with LmdbWriter(tmp_path / "db", overwrite=overwrite) as writer:
            writer.put(pb.Datum(label=label))
    with pytest.raises(FileError, match="db: exists already"):
        LmdbWriter(tmp_path / "db")
    assert records(tmp_path / "db") == {b"00000000": pb.Datum(label=2)}
    assert [entry.name for entry in tmp_path.iterdir()] == ["db"]


def test_a_failure_leaves_what_stood_there(tmp_path: Path) -> None:
    with LmdbWriter(tmp_path / "db") as writer:
        writer.put(pb.Datum(label=1))
    with pytest.raises(ZeroDivisionError), LmdbWriter(tmp_path / "db", overwrite=True) as writer:
        writer.put(pb.Datum(label=1 // 0))
    assert records(tmp_path / "db") == {b"00000000": pb.Datum(label=1)}
    assert [entry.name for entry in tmp_path.iterdir()] == ["db"]


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    writer = LmdbWriter(tmp_path / "db")
    writer.put(pb.Datum(), "a")
    writer.put(pb.Datum(), "a")
    with pytest.raises(WriteError, match='key "a" is given twice'):
        writer.__exit__(None, None, None)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file/db: could not be written"):
        LmdbWriter(tmp_path / "file" / "db")
