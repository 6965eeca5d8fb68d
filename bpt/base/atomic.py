"""Write files so that a crash, a full disk or a signal leaves the old file unchanged.

The content goes to a temporary file in the same folder, which is synced and then replaces the old file. Content for a
device or a pipe (``/dev/stdout``) is copied there when it is complete.
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

_STEM = 100  # characters of a file's name that its temporary name keeps


def check_place(path: str | os.PathLike[str]) -> None:
    """Check, before long work, that its outcome can be written to the file ``path``.

    Raises:
        FileError: no file can be written there: the folder is missing or not writable.
    """
    place = Path(path)
    if place.is_dir():
        raise FileError(path, "cannot be written: it is a folder")
    if not place.parent.is_dir():
        raise FileError(path, f'cannot be written: there is no folder "{place.parent}"; make it, or name another')
    if not _is_device(place) and not os.access(place.parent, os.W_OK | os.X_OK):
        raise FileError(path, f'cannot be written: the folder "{place.parent}" is not writable')
    if not _is_device(place) and (problem := creation_problem(place.parent)):
        raise FileError(path, f"cannot be written: {problem}")


def creation_problem(folder: str | os.PathLike[str]) -> str:
    """Return why no file can be created in ``folder`` although permissions allow it (/proc, a full quota); else ""."""
    try:
        with tempfile.TemporaryDirectory(dir=folder):
            return ""
    except OSError as error:
        return f'nothing can be created in the folder "{os.fspath(folder)}": {error.strerror or error}'


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the name of an empty file to write; when the block ends, it becomes the file at ``path``.

    It is for libraries that need a file name; :func:`atomic_file` yields an open file. The temporary name ends like
    ``path`` (``.h5``), starts with a dot and lies in the same folder. If the block raises an error, the temporary file
    is removed and the file at ``path`` stays unchanged. A link is followed, and a replaced file keeps its permissions.

    Raises:
        WriteError: opening, writing, syncing or renaming raised an OSError. It names ``path`` and the reason, so the
            block should do nothing except write this file.
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
    """Yield an open binary file; when the block ends, it becomes the file at ``path``, as with atomic_path."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8 to the file at ``path``, completely or not at all.

    Raises:
        WriteError: it could not be written.
    """
    with atomic_file(path) as file:
        file.write(text.encode())


@contextlib.contextmanager
def atomic_paths(*paths: str) -> Iterator[list[str]]:
    """Yield the names of empty files to write; when the block ends, they become the files at ``paths`` together.

    The last file proves that the others are complete. Its old version is removed before any other file is replaced, so
    it never exists beside files that it does not belong to. If the block raises an error, the old files stay. Links are
    replaced, not followed.

    Raises:
        WriteError: a file could not be written or renamed; the error names its path.
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
    """Return the temporary files that killed writers left of files whose names start with ``prefix``.

    Call it only when no other process writes such files: a running writer has temporary files, too.
    """
    folder, name = os.path.split(prefix)
    pattern = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp(?:\.\w+)?")
    try:
        found = [match for match in map(pattern.fullmatch, os.listdir(folder or ".")) if match]
    except OSError:
        return []
    if len(name) >= _STEM:  # temporary names are too short to show the prefix
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
    """Return whether ``path`` is written to and never replaced: a device, a pipe, a socket."""
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
    """Sync the folder of a new name, if the file system can; the file itself is synced already."""
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
