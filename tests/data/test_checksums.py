"""Checksums at the end of data files: every damage is found, named where it is, and nobody else minds them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import h5py
import lmdb
import numpy as np
import pytest

from bpt.base.errors import FileError
from bpt.data.checksums import PIECE, add_checksums, damaged_pieces
from bpt.data.datum import encode_datum
from bpt.data.hdf5_file import Hdf5Writer
from bpt.data.lmdb_file import LmdbSource, LmdbWriter
from bpt.data.verify import Verified, verify_hdf5, verify_lmdb
from tests.support.paths import GOLDEN


def image(index: int, size: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 256, (1, 1, size), np.uint8)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """300 small records, and every tenth of 3 pages."""
    with LmdbWriter(tmp_path / "db") as writer:
        for index in range(300):
            writer.put(encode_datum(image(index, 100 if index % 10 else 9000), index % 7))
    return tmp_path / "db"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """10 rows of 2 KB, written in three calls."""
    writer = Hdf5Writer(str(tmp_path / "rows.h5"))
    for start, stop in ((0, 4), (4, 8), (8, 10)):
        writer.append({"data": np.full((stop - start, 512), start, np.float32), "label": np.arange(start, stop) / 2})
    writer.close()
    return tmp_path / "rows.h5"


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 700 * PIECE + 5])
def test_pieces_of_any_file(size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    path.write_bytes(content)
    assert damaged_pieces(path) is None
    add_checksums(path)
    told: list[int] = []
    assert damaged_pieces(path, told.append) == ()
    assert sum(told) == size
    whole = path.read_bytes()
    assert whole.startswith(content)
    for at in {0, size // 2, size - 1} if size else ():
        bad = bytearray(whole)
        bad[at] ^= 4
        path.write_bytes(bad)
        assert damaged_pieces(path) == (at // PIECE,)
    for at in range(size, len(whole), 97 if size > PIECE else 1):
        bad = bytearray(whole)
        bad[at] ^= 1 << at % 8
        path.write_bytes(bad)
        with pytest.raises(FileError, match="the list of its checksums is damaged"):
            damaged_pieces(path)


def test_others_read_an_lmdb_that_has_them(database: Path) -> None:
    with lmdb.open(str(database), readonly=True, lock=False) as environment, environment.begin() as transaction:
        theirs = [bytes(value) for _, value in transaction.cursor()]
    source = LmdbSource(str(database))
    assert theirs == [source.record(index).datum for index in range(300)]
    source.close()
    assert verify_lmdb(str(database)) == Verified(str(database), "300 records", True)


def test_others_write_to_an_lmdb_that_has_them(database: Path) -> None:
    """What they wrote is there, and that it has been written to is told."""
    with lmdb.open(str(database), lock=False, map_size=2**26) as environment:
        for index in range(200):
            with environment.begin(write=True) as transaction:
                transaction.put(b"x%d" % index, b"y" * 3000)
    source = LmdbSource(str(database))
    assert len(source) == 500
    assert source.record(499).key == b"x99"
    source.close()
    found = verify_lmdb(str(database))
    assert not found.has_checksums or found.damage


def test_what_caffe_wrote_has_none_and_is_read_whole(tmp_path: Path) -> None:
    folder = str(GOLDEN / "lmdb" / "digits_test_lmdb")
    assert verify_lmdb(folder) == Verified(folder, "100 records", False)
    shutil.copytree(folder, tmp_path / "db")
    content = (tmp_path / "db" / "data.mdb").read_bytes()
    at = content.index(b"00000042") + 8  # where its Datum begins
    (tmp_path / "db" / "data.mdb").write_bytes(content[:at] + b"\xff" * 4 + content[at + 4 :])
    found = verify_lmdb(str(tmp_path / "db"))
    assert found.damage == ('record "00000042": not a Datum, or a damaged one',)


@pytest.mark.parametrize("index", [3, 20])
def test_damaged_records_are_named(index: int, database: Path) -> None:
    """Of small ones also their neighbours on the page."""
    path = database / "data.mdb"
    content = bytearray(path.read_bytes())
    content[content.index(image(index, 100 if index % 10 else 9000).tobytes()) + 50] ^= 1
    path.write_bytes(content)
    found = verify_lmdb(str(database))
    named = [f'record "{index:08d}"']
    assert found.damage == tuple(named) if index % 10 == 0 else set(named) < set(found.damage)


def test_others_read_and_write_hdf5_files_that_have_them(rows: Path) -> None:
    with h5py.File(rows) as file:
        np.testing.assert_array_equal(file["label"], np.arange(10) / 2)
    amount = '10 rows of "data", 10 rows of "label"'
    assert verify_hdf5(str(rows)) == Verified(str(rows), amount, True)
    with h5py.File(rows, "r+") as file:
        file["label"][0] = 5
    assert verify_hdf5(str(rows)) == Verified(str(rows), amount, False)


def test_damaged_rows_are_named(rows: Path) -> None:
    content = bytearray(rows.read_bytes())
    content[content.index(np.full(600, 4, np.float32).tobytes()) + 2000] ^= 1
    rows.write_bytes(content)
    assert 'rows 4 to 7 of dataset "data"' in verify_hdf5(str(rows)).damage


def test_a_writer_that_goes_on(tmp_path: Path) -> None:
    writer = Hdf5Writer(str(tmp_path / "out.h5"))
    writer.close()
    assert not (tmp_path / "out.h5").exists()
    for _ in range(2):
        writer.append({"data": np.zeros((3, 2), np.float32)})
        writer.close()
        writer.close()
        found = verify_hdf5(str(tmp_path / "out.h5"))
        assert found.has_checksums
        assert not found.damage
    assert found.amount == '6 rows of "data"'


@pytest.mark.parametrize("kind", ["lmdb", "hdf5"])
def test_turned_bits_anywhere_are_found(kind: str, database: Path, rows: Path) -> None:
    path = database / "data.mdb" if kind == "lmdb" else rows
    good = path.read_bytes()
    chance = random.Random(3)
    for _ in range(300):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        assert (verify_lmdb(str(database)) if kind == "lmdb" else verify_hdf5(str(rows))).damage
