"""LMDBs, read and written."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest

from bpt.base.errors import DataError, FileError, UserError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbSource, LmdbWriter
from tests.support.lmdbs import write_images, write_records
from tests.support.paths import GOLDEN

LMDB = GOLDEN / "lmdb"
CONTENTS = dict(np.load(LMDB / "lmdb_contents.npz"))


@pytest.mark.parametrize("random_access", [False, True])
@pytest.mark.parametrize(
    ("name", "factor"), [("digits_train_lmdb", 1), ("digits_test_lmdb", 1), ("color_lmdb", 1), ("float_lmdb", 255)]
)
def test_reads_what_caffe_wrote(name: str, factor: int, random_access: bool) -> None:
    source = LmdbSource(str(LMDB / name), random_access=random_access)
    samples = [source.read(index) for index in range(len(source))]
    source.close()
    # float_lmdb holds the recorded bytes / 255 as floats.
    images = np.stack([sample.image for sample in samples]) * np.float32(factor)
    np.testing.assert_allclose(images, CONTENTS[f"{name}/data"], rtol=1e-6)
    assert [sample.label for sample in samples] == CONTENTS[f"{name}/label"].tolist()
    assert [sample.key for sample in samples] == [f"{index:08d}" for index in range(len(samples))]


@pytest.mark.parametrize("random_access", [False, True])
def test_reads_in_any_order(random_access: bool) -> None:
    source = LmdbSource(str(LMDB / "digits_test_lmdb"), random_access=random_access)
    order = [99, 0, 0, 57, 3, 98, 99, 0]
    images = [source.read(index).image for index in order]
    source.close()
    np.testing.assert_array_equal(np.stack(images), CONTENTS["digits_test_lmdb/data"][order])


def test_order_is_that_of_the_keys(tmp_path: Path) -> None:
    records = {
        key: pb.Datum(channels=1, height=1, width=1, data=b"x", label=label).SerializeToString()
        for key, label in ((b"b", 1), (b"a/2.png", 0), (b"\xff\x00", 2))
    }
    source = LmdbSource(write_records(tmp_path / "db", records))
    samples = [source.read(index) for index in range(3)]
    source.close()
    assert [(sample.key, sample.label) for sample in samples] == [("a/2.png", 0), ("b", 1), ("\\xff\x00", 2)]


def test_two_readers_share_a_folder_and_leave_it_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_images(tmp_path / "db", [np.full((1, 2, 2), value, np.uint8) for value in (5, 6)])
    before = (tmp_path / "db" / "data.mdb").read_bytes()
    first = LmdbSource(path)
    monkeypatch.chdir(tmp_path)
    second = LmdbSource("db")
    first.close()
    first.close()  # closing twice does not take the folder away from the other
    assert second.read(1).image.tolist() == [[[6, 6], [6, 6]]]
    second.close()
    assert [file.name for file in (tmp_path / "db").iterdir()] == ["data.mdb"]
    assert (tmp_path / "db" / "data.mdb").read_bytes() == before
    lmdb.open(path).close()  # LMDB would refuse if it were still open


def test_missing_folder_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError) as caught:
        LmdbSource("nets/train_lmdb")
    assert str(caught.value) == f"nets/train_lmdb: no such folder (looked for {tmp_path}/nets/train_lmdb)"


GOOD = (LMDB / "digits_train_lmdb" / "data.mdb").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "its data.mdb is empty"),
        (b"garbage " * 2000, "is not a readable LMDB: File is not an LMDB file"),
        (GOOD[:100_000], f"its data.mdb is truncated: 100000 bytes of {len(GOOD)}; copy or make it again"),
    ],
)
def test_damaged_file(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(FileError) as caught:
        LmdbSource(str(tmp_path))
    assert str(caught.value) == f"{tmp_path}: {message}"


def test_a_file_is_not_an_lmdb(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("")
    with pytest.raises(FileError, match="db: is a file; an LMDB is a folder"):
        LmdbSource(str(tmp_path / "db"))


def test_a_leveldb_is_converted_not_read(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-000002\n")
    (tmp_path / "MANIFEST-000002").write_bytes(b"leveldb.BytewiseComparator")
    message = r"is a LevelDB, .* with bpt convert imageset, or copy .* lines that do so\)$"
    with pytest.raises(FileError, match=message):
        LmdbSource(str(tmp_path))


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("now")
    with pytest.raises(FileError, match=r"is not an LMDB: it holds no data\.mdb$"):
        LmdbSource(str(tmp_path))


def test_no_records(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="db: is an LMDB without records"):
        LmdbSource(write_records(tmp_path / "db", {}))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\x08", "not a Datum, or a damaged one"),
        (b"", "a Datum of channels × height × width = 0×0×0; each must be at least 1"),
        (
            pb.Datum(channels=3, height=2, width=2, data=b"1234567").SerializeToString(),
            "a Datum of channels × height × width = 3×2×2 needs 12 values, has 7",
        ),
        (
            pb.Datum(channels=1, height=1, width=2, float_data=[1.0]).SerializeToString(),
            "a Datum of channels × height × width = 1×1×2 needs 2 values, has 1",
        ),
        (pb.Datum(encoded=True, data=b"\x89PNG").SerializeToString(), "4 bytes that are no image file"),
    ],
)
def test_bad_record_is_named(tmp_path: Path, record: bytes, reason: str) -> None:
    source = LmdbSource(write_records(tmp_path / "db", {b"00000007": record}))
    with pytest.raises(DataError) as caught:
        source.read(0)
    source.close()
    assert str(caught.value) == f'{tmp_path}/db: record "00000007": {reason}'


def test_only_writing_needs_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    source = LmdbSource(str(LMDB / "color_lmdb"))
    assert source.read(0).key == "00000000"
    source.close()
    with pytest.raises(UserError, match=r"pip install 'bpt\[lmdb\]'"):
        LmdbWriter(tmp_path / "db")


NUMBERED = {f"{index:08d}".encode(): pb.Datum(label=index).SerializeToString() for index in range(2000)}


def read_all(source: LmdbSource) -> list[bytes]:
    return [source.record(index).datum for index in range(len(source))]


@pytest.mark.parametrize("random_access", [False, True])
@pytest.mark.parametrize("length", [0, 5000, 40_000])
def test_cut_while_it_is_read(random_access: bool, length: int, tmp_path: Path) -> None:
    """Where a map of the file would end the process by SIGBUS."""
    path = write_records(tmp_path / "db", NUMBERED)
    size = (tmp_path / "db" / "data.mdb").stat().st_size
    source = LmdbSource(path, random_access=random_access)
    source.record(0)
    os.truncate(tmp_path / "db" / "data.mdb", length)
    with pytest.raises(DataError) as caught:
        read_all(source)
    assert re.fullmatch(
        rf"{path}: record \d+ of 2000 cannot be read: while it was read its data.mdb was cut: it had {size} bytes",
        str(caught.value),
    )
    source.close()


def test_another_is_copied_over_it_while_it_is_read(tmp_path: Path) -> None:
    path = write_records(tmp_path / "db", NUMBERED)
    write_records(tmp_path / "other", dict.fromkeys(NUMBERED, b"x" * 50))
    source = LmdbSource(path)
    source.record(0)
    shutil.copyfile(tmp_path / "other" / "data.mdb", tmp_path / "db" / "data.mdb")
    with pytest.raises(DataError, match="or another one was copied over it"):
        read_all(source)
    source.close()


def test_another_takes_its_place_while_it_is_read(tmp_path: Path) -> None:
    """What was opened is read on, as it was."""
    path = write_records(tmp_path / "db", NUMBERED)
    write_records(tmp_path / "other", {b"a": b"x"})
    source = LmdbSource(path)
    os.rename(tmp_path / "other" / "data.mdb", tmp_path / "db" / "data.mdb")
    assert read_all(source) == list(NUMBERED.values())
    source.close()


def test_a_writer_of_another_program_beside_the_reader(tmp_path: Path) -> None:
    """One transaction leaves what is read as it is; after a second one pages may be used anew."""
    path = write_records(tmp_path / "db", NUMBERED)
    source = LmdbSource(path)
    with lmdb.open(path, lock=False) as environment:
        for times, key in enumerate((b"1", b"2"), 1):
            with environment.begin(write=True) as transaction:
                transaction.put(key, b"")
            if times == 1:
                assert read_all(source) == list(NUMBERED.values())
        with pytest.raises(DataError, match=r"its data\.mdb was written to"):
            read_all(source)
    source.close()


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
