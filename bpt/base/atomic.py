"""Writes files so that a crash, a full disk or a signal leaves the old file as it was.

The content goes to a temporary file in the same folder, which is synced and then takes the old one's place. What goes
to a device or a pipe (``/dev/stdout``) is copied there once it is complete.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bpt.base.errors import FileError, WriteError

_STEM = 100  # characters of a file's name that its temporary one has, too


def check_place(path: str | os.PathLike[str]) -> None:
    """Better before the work whose outcome is to be written to the file ``path`` than after it.

    Raises:
        FileError: no file can be written there: the folder is missing, or nothing may be written in it.
    """
    place = Path(path)
    if place.is_dir():
        raise FileError(path, "cannot be written: it is a folder")
    if not place.parent.is_dir():
        raise FileError(path, f'cannot be written: there is no folder "{place.parent}"; make it, or name another')
    if not _is_device(place) and not os.access(place.parent, os.W_OK | os.X_OK):
        raise FileError(path, f'cannot be written: the folder "{place.parent}" is not writable')
    if not _is_device(place) and (problem := creates_nothing(place.parent)):
        raise FileError(path, f"cannot be written: {problem}")


def creates_nothing(folder: str | os.PathLike[str]) -> str:
    """Why nothing can be created there, though permissions allow it: as in /proc, or where a quota is used up."""
    try:
        with tempfile.TemporaryDirectory(dir=folder):
            return ""
    except OSError as error:
        return f'nothing can be created in the folder "{os.fspath(folder)}": {error.strerror or error}'


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the name of an empty file to write; once the block ends, it becomes the file at ``path``.

    For libraries that want a file name; :func:`atomic_file` gives an open file. The temporary name ends like
    ``path`` (``.h5``), starts with a dot and lies in the same folder. If the block raises anything, the
    temporary file is removed and the file at ``path`` stays as it was. A link is followed, and a replaced
    file keeps its permissions.

    Raises WriteError, which names ``path`` and the reason, for every OSError, whether opening, writing,
    syncing or renaming fails: do nothing but write this file in the block.
    """
    target = Path(os.path.realpath(path))
    try:
        if _is_device(path):
            with _beside_a_device(path) as temporary:
                yield temporary
            return
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
    """Give an open binary file; once the block ends, it becomes the file at ``path``. See atomic_path."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


@contextlib.contextmanager
def atomic_paths(*paths: str) -> Iterator[list[str]]:
    """Give the names of empty files to write; once the block ends, they become the files at ``paths``: one commit.

    The last one vouches for the others: what stood in its place is gone before any of these is replaced, so whatever
    happens in between, nobody ever sees it beside what it does not belong to. If the block raises anything, the old
    files stay. Links are replaced, not followed.

    Raises:
        WriteError: a file could not be written, whether by the block or on its way to its place; it names the one of
            ``paths``.
    """
    temporary: dict[str, Path] = {}
    path = paths[-1]
    try:
        for path in paths:
            temporary[path] = _create_beside(Path(path))
        yield [os.fspath(made) for made in temporary.values()]
        for path in paths:
            _sync(temporary[path])
        Path(path).unlink(missing_ok=True)
        for path in paths:
            os.replace(temporary[path], path)
        _sync_folder(Path(path).parent)
    except (FileError, WriteError) as error:
        named = {os.fspath(made): name for name, made in temporary.items()}
        raise (error.about(named[error.path]) if error.path in named else error) from None
    except OSError as error:
        raise WriteError(path, _reason(Path(path), error)) from error
    finally:
        for made in temporary.values():
            made.unlink(missing_ok=True)


def leftovers(prefix: str) -> list[str]:
    """Temporary files of writers that were killed, of files whose names start with ``prefix``.

    To be asked where nobody else writes any: a writer that lives has such files, too.
    """
    folder, name = os.path.split(prefix)
    pattern = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp(?:\.\w+)?")
    try:
        found = [match for match in map(pattern.fullmatch, os.listdir(folder or ".")) if match]
    except OSError:
        return []
    if len(name) >= _STEM:  # temporary names do not tell whose they are
        return []
    return [os.path.join(folder, match[0]) for match in found if match[1].lstrip(".").startswith(name)]


def _create_beside(target: Path) -> Path:
    """Create an empty file beside ``target``, with the permissions that ``target`` has or would get."""
    if target.is_dir():
        raise OSError("there is a folder of that name")
    temporary = target.with_name(f".{target.stem[:_STEM]}.{secrets.token_hex(6)}.tmp{target.suffix}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    with contextlib.suppress(FileNotFoundError):
        os.chmod(temporary, target.stat().st_mode & 0o7777)
    return temporary


def _is_device(path: str | os.PathLike[str]) -> bool:
    """Whether there is something at ``path`` that is written to, but not replaced: a device, a pipe, a socket."""
    try:
        mode = os.stat(path).st_mode  # not of the real path: a link in /dev/fd to a pipe has none
    except (OSError, ValueError):  # no name of a file has a null character
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def _beside_a_device(path: str | os.PathLike[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder, Path(path).name)
        temporary.touch()
        yield temporary
        with open(temporary, "rb") as content, open(path, "wb") as device:
            shutil.copyfileobj(content, device)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the new name last. The file is in place already, and some file systems cannot sync a folder."""
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
