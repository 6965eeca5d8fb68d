"""Writes files so that a crash, a full disk or a signal leaves the old file as it was.

The content goes to a temporary file in the same folder, which is synced and then takes the old one's place.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bpt.errors import WriteError


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives the name of an empty file to write; once the block ends, it becomes the file at ``path``.

    For libraries that want a file name; :func:`atomic_file` gives an open file. The temporary name ends like
    ``path`` (``.h5``), starts with a dot and lies in the same folder. If the block raises anything, the
    temporary file is removed and the file at ``path`` stays as it was. A link is followed, and a replaced
    file keeps its permissions.

    Raises WriteError, which names ``path`` and the reason, for every OSError, whether opening, writing,
    syncing or renaming fails: do nothing but write this file in the block.
    """
    target = Path(os.path.realpath(path))
    try:
        temporary = _create_beside(target)
        try:
            yield temporary
            _sync(temporary)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise WriteError(path, _reason(target, error)) from error


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Gives an open binary file; once the block ends, it becomes the file at ``path``. See atomic_path."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def _create_beside(target: Path) -> Path:
    """Creates an empty file beside ``target``, with the permissions that ``target`` has or would get."""
    if target.exists() and not target.is_file():
        raise OSError("there is a folder or a device of that name")
    temporary = target.with_name(f".{target.stem[:100]}.{secrets.token_hex(6)}.tmp{target.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    with contextlib.suppress(FileNotFoundError):
        os.chmod(temporary, target.stat().st_mode & 0o7777)
    return temporary


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Makes the new name last. The file is in place already, and some file systems cannot sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(target: Path, error: OSError) -> str:
    if not target.parent.is_dir():
        return f'there is no folder "{target.parent}"'
    return error.strerror or str(error)
