"""LmdbSource: Datum records in an LMDB, in the order of their keys."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bpt.data.datum import decode_datum, is_encoded
from bpt.data.lmdb_env import acquire, import_lmdb, release
from bpt.data.source import Sample
from bpt.errors import DataError


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
