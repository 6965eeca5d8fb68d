"""LmdbWriter: writes Datum records to a new LMDB, all of it or nothing."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from bpt.data.lmdb_env import import_lmdb
from bpt.errors import FileError, WriteError
from bpt.proto import bpt_pb2 as pb

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
