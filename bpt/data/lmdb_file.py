"""Reads data sets of Datum records from LMDBs in the order of their keys, and writes them atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

import numpy as np

from bpt.base.errors import DataError, FileError, UserError, WriteError
from bpt.base.formats import LMDB
from bpt.base.native_paths import windows_hint
from bpt.base.user_files import refuse_file
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.checksums import add_checksums
from bpt.data.datum import decode_datum, is_encoded
from bpt.data.lmdb_pages import DamagedError, Leaf, LmdbEntry, LmdbFile, NotLmdbError
from bpt.data.sampler import Integers
from bpt.data.source import Sample

_LEVELDB = (
    "is a LevelDB, which bpt does not read: make the data set again with bpt convert imageset, or copy its records, "
    "keys and values unchanged, into an LMDB (docs/data.md has the few lines that do so)"
)
_LOOK_EVERY = 1024  # records between two checks that the file is still the one that was opened


def import_lmdb() -> ModuleType:
    """Return the module ``lmdb``, for writing; raise a UserError that says how to install it if it is missing."""
    try:
        import lmdb  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("writing LMDBs needs the package lmdb: pip install 'bpt[lmdb]'") from None
    return lmdb


def open_lmdb(path: str) -> LmdbFile:
    """Open the LMDB in the folder ``path``; the caller closes it.

    This writes nothing there, not even a lock file, so the folder may be read-only and shared.

    Raises:
        FileError: the LMDB is missing, empty or truncated, or this is not an LMDB.
    """
    file = _data_file(path)
    try:
        found = LmdbFile(file)
    except NotLmdbError as error:
        other = refuse_file(file, LMDB.what, "").reason
        raise FileError(path, f"its data.mdb {other}" if other else str(error)) from None
    except OSError as error:
        raise FileError(path, f"its data.mdb cannot be read: {error.strerror or error}") from None
    if not found.meta.entries:
        found.close()
        raise FileError(path, "is an LMDB without records")
    return found


def _data_file(path: str) -> Path:
    folder = Path(path)
    file = folder / "data.mdb"
    if not folder.exists():
        looked = "" if folder.is_absolute() else f" (looked for {folder.absolute()})"
        raise FileError(path, f"no such folder{looked}{windows_hint(path)}")
    if not folder.is_dir():
        raise FileError(path, "is a file; an LMDB is a folder that holds data.mdb")
    if not file.is_file():
        is_leveldb = (folder / "CURRENT").is_file() and any(folder.glob("MANIFEST-*"))
        raise FileError(path, _LEVELDB if is_leveldb else "is not an LMDB: it holds no data.mdb")
    if not file.stat().st_size:
        raise FileError(path, "its data.mdb is empty")
    return file


class DatumRecord(NamedTuple):
    """A record of a database: its key and a serialised Datum."""

    key: bytes
    datum: bytes

    def sample(self, path: str, channels: int | None = None) -> Sample:
        """Decode the record; ``channels`` is as in LmdbSource.

        Raises:
            DataError: the record cannot be decoded; the message names ``path`` and key.
        """
        name = self.key.decode("ascii", "backslashreplace")
        try:
            image, label = decode_datum(self.datum, channels)
        except DataError as error:
            raise DataError(f'{path}: record "{name}": {error}') from None
        return Sample(name, image, label)


class LmdbSource:
    """The records of the LMDB in the folder ``path``, with any keys.

    Args:
        random_access: whether records will be read in any order. Then the first read makes a table of their places.
            Without it the source walks from record to record, which needs no table; going back means walking from the
            start.
        channels: number of channels to which encoded images are converted, 1 or 3; ``None`` keeps the file's.

    Raises:
        FileError: the LMDB is missing, empty or truncated, or this is not an LMDB.
    """

    def __init__(self, path: str, *, random_access: bool = False, channels: int | None = None) -> None:
        self.path = path
        self._channels = channels
        self._random_access = random_access
        self._file = open_lmdb(path)
        self._size = self._file.meta.entries
        self._reads = 0
        self._leaves: Iterator[Leaf] = iter(())
        self._leaf: Leaf = []
        self._start = self._size  # index of the first record of the current leaf; at first there is none
        self._places: tuple[Integers, Integers] | None = None  # pages of leaves, and records up to each end

    def __len__(self) -> int:
        return self._size

    def read(self, index: int) -> Sample:
        return self.record(index).sample(self.path, self._channels)

    def begin(self, index: int) -> Callable[[], Sample]:
        return partial(self.record(index).sample, self.path, self._channels)

    def is_encoded(self) -> bool:
        """Return whether the first record has an image file; raise a DataError if it cannot be read."""
        return is_encoded(self.record(0).datum)

    def record(self, index: int) -> DatumRecord:
        """Return record ``index``, not decoded; raise a DataError if it is unreadable or the file has changed."""
        self._reads += 1
        try:
            if not self._reads % _LOOK_EVERY:
                self._file.check_unchanged()
            entry = self._find(index) if self._random_access else self._walk(index)
            return DatumRecord(entry.key, self._file.value(entry))
        except (DamagedError, OSError) as error:
            reason = self._change() or error
            raise DataError(f"{self.path}: record {index} of {self._size} cannot be read: {reason}") from None

    def glance(self) -> Iterator[bytes]:
        file = self._file
        try:
            first, last = (next(file.leaves(backwards))[0] for backwards in (False, True))
            between = [file.first_from(key) for key in _between(first.key, last.key)]
            for entry in (first, *between, last):
                if entry:
                    yield entry.key
                    yield file.value(entry)
        except DamagedError as error:
            raise DataError(f"{self.path}: {error}") from None

    def _change(self) -> str:
        """Return the change of the file since it was opened, which causes other errors; "" if there is none."""
        try:
            self._file.check_unchanged()
        except (DamagedError, OSError) as error:
            return str(error)
        return ""

    def _find(self, index: int) -> LmdbEntry:
        if self._places is None:
            numbers, counts = zip(*self._file.places(), strict=True)
            self._places = np.array(numbers), np.cumsum(counts)
        pages, ends = self._places
        leaf = int(np.searchsorted(ends, index, side="right"))
        return self._file.entry(int(pages[leaf]), index - (int(ends[leaf - 1]) if leaf else 0))

    def _walk(self, index: int) -> LmdbEntry:
        if index < self._start:
            self._leaves, self._leaf, self._start = self._file.leaves(), [], 0
        while index >= self._start + len(self._leaf):
            self._start += len(self._leaf)
            self._leaf = []
            self._leaf = next(self._leaves)
        return self._leaf[index - self._start]

    def close(self) -> None:
        self._file.close()


def _between(first: bytes, last: bytes) -> list[bytes]:
    """Return two keys between ``first`` and ``last``, evenly spaced as numbers; they need not exist."""
    length = max(len(first), len(last))
    low, high = (int.from_bytes(key.ljust(length, b"\0"), "big") for key in (first, last))
    return [(low + (high - low) * part // 3).to_bytes(length, "big") for part in (1, 2)]


_RECORDS_A_COMMIT = 1000  # as in Caffe's convert_imageset
_FIRST_MAP_SIZE = 2**24  # bytes; it doubles whenever the map is full


def check_new(path: str | os.PathLike[str]) -> None:
    """Raise a FileError if ``path`` exists."""
    if os.path.exists(path):
        raise FileError(path, "exists already; remove it or name another")


class LmdbWriter:
    """Context manager that writes the LMDB ``path``.

    An example::

        with LmdbWriter("train_lmdb") as writer:
            writer.put(datum)

    The records go to a temporary folder beside it, which is renamed to ``path`` if the block ends without an error. The
    file ends with checksums, which other programs ignore.

    Args:
        overwrite: whether to replace an existing ``path``, which is a FileError otherwise.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._lmdb = import_lmdb()
        if not overwrite:
            check_new(path)
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")
        self._pending: list[tuple[bytes, bytes]] = []
        self._count = 0
        self._map_size = _FIRST_MAP_SIZE
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._environment = self._lmdb.open(os.fspath(self._temporary), map_size=self._map_size, lock=False)

    def __len__(self) -> int:
        """Return the number of records so far."""
        return self._count

    def put(self, datum: pb.Datum | pb.AnnotatedDatum, key: str | None = None) -> None:
        """Add a record with ``key``, by default its number in eight digits."""
        self._pending.append(((key or f"{self._count:08d}").encode(), datum.SerializeToString()))
        self._count += 1
        if len(self._pending) == _RECORDS_A_COMMIT:
            self._commit()

    def _commit(self) -> None:
        with self._writing():
            while True:
                try:
                    with self._environment.begin(write=True) as transaction:
                        for key, record in self._pending:
                            if not transaction.put(key, record, overwrite=False):
                                raise WriteError(self.path, f'key "{key.decode()}" is given twice')
                    break
                except self._lmdb.MapFullError:
                    self._map_size *= 2
                    self._environment.set_mapsize(self._map_size)
        self._pending.clear()

    def __enter__(self) -> LmdbWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
                with self._writing():
                    self._environment.sync(True)
                    self._environment.close()
                    add_checksums(self._temporary / "data.mdb")
                    self._take_place()
        finally:
            self._environment.close()
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _take_place(self) -> None:
        old = self._temporary.with_suffix(".old")
        if self.path.exists():
            os.rename(self.path, old)
        os.rename(self._temporary, self.path)
        shutil.rmtree(old, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, self._lmdb.Error) as error:
            raise WriteError(self.path, getattr(error, "strerror", None) or error) from None
