"""Data sets of Datum records in LMDBs: opened, read in the order of their keys, and written, all of it or nothing.

LMDB forbids to open a database twice in one process, yet a train and a test net may read the same one.
So all readers of a folder share an environment, and the last of them closes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NamedTuple

from bpt.data.datum import decode_datum, is_encoded
from bpt.data.source import Sample
from bpt.errors import DataError, FileError, UserError, WriteError
from bpt.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from lmdb import Environment


_LEVELDB = (
    "is a LevelDB, which bpt does not read but wants converted: make the data set again with "
    "tools/convert_imageset.py, or copy its records, keys and values as they are, into an LMDB (docs/data.md has the "
    "few lines that do so)"
)
_lock = threading.Lock()
_environments: dict[str, tuple[Environment, int]] = {}  # real path → environment, number of readers


def import_lmdb() -> ModuleType:
    """The module ``lmdb``; a UserError that says how to install it if it is missing."""
    try:
        import lmdb  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("reading and writing LMDBs needs the package lmdb: pip install 'bpt[lmdb]'") from None
    return lmdb


def acquire(path: str) -> Environment:
    """The environment of the folder ``path``, read-only; ``release(path)`` gives it back.

    Nothing is written there, not even a lock file, so the folder may be read-only and shared.

    Raises:
        FileError: missing, not an LMDB, empty or truncated.
        UserError: the package lmdb is missing.
    """
    real = os.path.realpath(path)
    with _lock:
        environment, readers = _environments.get(real) or (_open(path), 0)
        _environments[real] = environment, readers + 1
        return environment


def release(real: str) -> None:
    """Give back what ``acquire`` gave for the folder with the real path ``real``."""
    with _lock:
        environment, readers = _environments.pop(real)
        if readers > 1:
            _environments[real] = environment, readers - 1
        else:
            environment.close()


def _open(path: str) -> Environment:
    lmdb = import_lmdb()
    file = _data_file(path)
    try:
        environment: Environment = lmdb.open(path, readonly=True, lock=False)
    except lmdb.Error as error:
        reason = str(error).removeprefix(f"{path}: ").removeprefix("MDB_INVALID: ")
        raise FileError(path, f"is not an LMDB that can be read: {reason}") from None
    try:
        _check(path, file, environment)
    except BaseException:
        environment.close()
        raise
    return environment


def _data_file(path: str) -> Path:
    folder = Path(path)
    file = folder / "data.mdb"
    if not folder.exists():
        looked = "" if folder.is_absolute() else f" (looked for {folder.absolute()})"
        raise FileError(path, f"no such folder{looked}")
    if not folder.is_dir():
        raise FileError(path, "is a file; an LMDB is a folder that holds data.mdb")
    if not file.is_file():
        is_leveldb = (folder / "CURRENT").is_file() and any(folder.glob("MANIFEST-*"))
        raise FileError(path, _LEVELDB if is_leveldb else "is not an LMDB: it holds no data.mdb")
    if not file.stat().st_size:
        raise FileError(path, "its data.mdb is empty")
    return file


def _check(path: str, file: Path, environment: Environment) -> None:
    # LMDB maps the file into memory: a page that is missing would kill the process instead of raising.
    need = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    have = file.stat().st_size
    if have < need:
        raise FileError(path, f"its data.mdb is truncated: {have} bytes of {need}; copy or make it again")
    if not environment.stat()["entries"]:
        raise FileError(path, "is an LMDB without records")


class Record(NamedTuple):
    """A record as it stands in a database: its key and a serialised Datum."""

    key: bytes
    datum: bytes

    def sample(self, path: str, channels: int | None = None) -> Sample:
        """The record decoded; a DataError names ``path`` and key if it cannot be. ``channels``: see LmdbSource."""
        name = self.key.decode("ascii", "backslashreplace")
        try:
            image, label = decode_datum(self.datum, channels)
        except DataError as error:
            raise DataError(f'{path}: record "{name}": {error}') from None
        return Sample(name, image, label)


class LmdbSource:
    """The records of the LMDB in the folder ``path``; any keys will do.

    Args:
        random_access: records will be read in any order. A table of all keys is then made at the first
            read. Without it a cursor walks from record to record, which needs no table; going back
            means walking from the start.
        channels: what encoded images are converted to, 1 or 3; ``None`` keeps what the file has.

    Raises:
        FileError: missing, not an LMDB, empty or truncated.
    """

    def __init__(self, path: str, *, random_access: bool = False, channels: int | None = None) -> None:
        self.path = path
        self._channels = channels
        self._random_access = random_access
        self._keys: list[bytes] = []
        self._error = import_lmdb().Error
        environment = acquire(path)
        self._release = weakref.finalize(self, release, os.path.realpath(path))
        self._size: int = environment.stat()["entries"]
        self._transaction = environment.begin()
        self._cursor = self._transaction.cursor()
        self._at = self._size  # index of the record under the cursor; at first beyond all

    def __len__(self) -> int:
        return self._size

    def read(self, index: int) -> Sample:
        return self.record(index).sample(self.path, self._channels)

    def begin(self, index: int) -> Callable[[], Sample]:
        return partial(self.record(index).sample, self.path, self._channels)

    def is_encoded(self) -> bool:
        """Whether the first record has to be decoded; a DataError if it cannot be read."""
        return is_encoded(self.record(0).datum)

    def record(self, index: int) -> Record:
        """Record ``index``, not decoded; a DataError if it cannot be read."""
        try:
            found = self._find(index) if self._random_access else self._walk(index)
            if not found:
                raise DataError(f"{self.path}: record {index} of {self._size} is missing: the LMDB is damaged")
            return Record(*self._cursor.item())
        except self._error as error:
            raise DataError(f"{self.path}: record {index} of {self._size} cannot be read: {error}") from None

    def _find(self, index: int) -> bool:
        if not self._keys:
            self._keys = [bytes(key) for key in self._cursor.iternext(keys=True, values=False)]
        return index < len(self._keys) and self._cursor.set_key(self._keys[index])

    def _walk(self, index: int) -> bool:
        found = True
        if index < self._at:
            found = self._cursor.first()
            self._at = 0
        while found and self._at < index:
            found = self._cursor.next()
            self._at += 1
        return found

    def close(self) -> None:
        self._cursor.close()
        self._transaction.abort()
        self._release()


_RECORDS_A_COMMIT = 1000  # as Caffe's convert_imageset
_FIRST_MAP_SIZE = 2**24  # bytes; doubled whenever it is full


def check_new(path: str | os.PathLike[str]) -> None:
    """Raise a FileError if there is something at ``path`` already."""
    if os.path.exists(path):
        raise FileError(path, "exists already; remove it or name another")


class LmdbWriter:
    """A context manager that makes the LMDB ``path``::

        with LmdbWriter("train_lmdb") as writer:
            writer.put(datum)

    The records go to a temporary folder beside it, which takes its name once the block has ended
    without an error.

    Args:
        overwrite: replace what stands at ``path``; else that is a FileError.
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
        """Records put so far."""
        return self._count

    def put(self, datum: pb.Datum, key: str | None = None) -> None:
        """Add a record under ``key``, by default its number in eight digits."""
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
            raise WriteError(self.path, error) from None
