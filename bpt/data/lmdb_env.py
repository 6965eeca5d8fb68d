"""LMDB environments opened for reading, each once a process.

LMDB forbids to open a database twice in one process, yet a train and a test net may read the same one.
So all readers of a folder share an environment, and the last of them closes it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bpt.errors import FileError, UserError

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
