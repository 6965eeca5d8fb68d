"""LMDBs read page by page, against LMDB's own library."""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path

import lmdb
import pytest

from bpt.data.lmdb_pages import DamagedError, LmdbEntry, LmdbFile, NotLmdbError
from tests.support.lmdbs import write_records
from tests.support.paths import GOLDEN

Records = dict[bytes, bytes]


def random_records(chance: random.Random, count: int, longest_key: int, longest_value: int) -> Records:
    def some(most: int, least: int = 0) -> bytes:
        return chance.randbytes(int(least + (most - least) * chance.random() ** 3))

    return {some(longest_key, 1): some(longest_value) for _ in range(count)}


def write_in_turns(path: Path, records: Records, chance: random.Random) -> Records:
    """An LMDB after some transactions that put, change and delete records; what is in it in the end."""
    path.mkdir()
    left = dict(records)
    with lmdb.open(str(path), lock=False, map_size=2**28) as environment:
        keys = list(records)
        for start in range(0, len(keys), 97):
            with environment.begin(write=True) as transaction:
                for key in keys[start : start + 97]:
                    transaction.put(key, records[key])
            with environment.begin(write=True) as transaction:
                for key in chance.sample(keys[: start + 97], min(20, start + 1)):
                    if key in left and chance.random() < 0.5:
                        transaction.delete(key)
                        left.pop(key)
                    elif key in left:
                        left[key] = chance.randbytes(chance.randrange(9000))
                        transaction.put(key, left[key])
    return left


def all_of(file: LmdbFile, backwards: bool = False) -> list[tuple[bytes, bytes]]:
    return [(entry.key, file.value(entry)) for entry in chain.from_iterable(file.leaves(backwards))]


@pytest.mark.parametrize(
    ("count", "longest_key", "longest_value"),
    [(1, 5, 5), (3, 500, 40), (700, 12, 200), (1500, 500, 20_000), (900, 8, 0)],
)
def test_reads_what_lmdb_reads(count: int, longest_key: int, longest_value: int, tmp_path: Path) -> None:
    chance = random.Random(count)
    records = random_records(chance, count, longest_key, longest_value)
    expected = write_in_turns(tmp_path / "db", records, chance)
    if not expected:
        expected = {b"k": b"v"}
        with lmdb.open(str(tmp_path / "db"), lock=False) as environment, environment.begin(write=True) as transaction:
            transaction.put(b"k", b"v")
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as environment, environment.begin() as transaction:
        theirs = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
        stat = environment.stat()
        wanted = [key for key, _ in theirs] + [chance.randbytes(chance.randrange(1, 12)) for _ in range(200)]
        cursor = transaction.cursor()
        ranges = [bytes(cursor.key()) if cursor.set_range(key) else None for key in wanted]
    assert theirs == sorted(expected.items())
    file = LmdbFile(tmp_path / "db" / "data.mdb")
    assert all_of(file) == theirs
    assert all_of(file, backwards=True) == theirs[::-1]
    assert [entry.key if entry else None for entry in map(file.first_from, wanted)] == ranges
    places = [(number, index) for number, size in file.places() for index in range(size)]
    some = chance.sample(range(len(theirs)), min(len(theirs), 300))
    assert [(entry.key, file.value(entry)) for entry in (file.entry(*places[at]) for at in some)] == [
        theirs[at] for at in some
    ]
    meta = file.meta
    assert (meta.entries, meta.depth, meta.leaf_pages, meta.large_pages, meta.page_size) == tuple(
        stat[name] for name in ("entries", "depth", "leaf_pages", "overflow_pages", "psize")
    )
    file.close()


def test_large_values_have_pages(tmp_path: Path) -> None:
    write_records(tmp_path / "db", {b"a": b"x" * 10_000, b"b": b"y"})
    file = LmdbFile(tmp_path / "db" / "data.mdb")
    large, small = chain.from_iterable(file.leaves())
    assert len(file.pages_of(large)) == 3  # 16 bytes before the value, 4096 a page
    assert not file.pages_of(small)
    with pytest.raises(DamagedError, match="should be a large value, but is not"):
        file.value(large._replace(large=2 if large.large != 2 else 3))
    with pytest.raises(DamagedError, match="reaches beyond the last page"):
        file.value(large._replace(size=10**9))
    file.close()


def test_several_values_a_key_and_databases_are_told(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), lock=False, max_dbs=1) as environment:
        environment.open_db(b"named")
    file = LmdbFile(tmp_path / "db" / "data.mdb")
    with pytest.raises(DamagedError, match="it has nested databases"):
        all_of(file)
    file.close()


def test_any_byte_may_be_wrong(tmp_path: Path) -> None:
    """What is read is what was written, but for the bytes themselves, or an error says what is wrong: nothing else."""
    chance = random.Random(5)
    write_records(tmp_path / "db", {b"%04d" % at: chance.randbytes(chance.choice((3, 300, 6000))) for at in range(60)})
    path = tmp_path / "db" / "data.mdb"
    good = path.read_bytes()
    refused = 0
    for _ in range(3000):
        bad = bytearray(good)
        # Half of them where the pages say what they hold.
        page = chance.randrange(len(good) // 4096)
        bad[page * 4096 + chance.randrange(chance.choice((32, 4096)))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        try:
            file = LmdbFile(path)
            entries: list[LmdbEntry] = list(chain.from_iterable(file.leaves()))
            assert len(entries) in (60, 0)  # none: of the two meta pages the older one, of a new file, seems the newer
            assert sum(len(file.value(entry)) for entry in entries) < len(good)
            file.close()
        except (NotLmdbError, DamagedError):
            refused += 1
    assert refused > 200


@pytest.mark.parametrize("name", ["digits_train_lmdb", "color_lmdb"])
def test_reads_what_caffe_wrote(name: str) -> None:
    folder = GOLDEN / "lmdb" / name
    with lmdb.open(str(folder), readonly=True, lock=False) as environment, environment.begin() as transaction:
        theirs = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]
    file = LmdbFile(folder / "data.mdb")
    assert all_of(file) == theirs
    file.close()
