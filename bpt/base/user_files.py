"""Read whole files that the user named, with a clear error for each way in which that fails.

Users may edit JSON files that bpt wrote, so an error says which value is wrong, and why.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bpt.base.atomic import write_text
from bpt.base.errors import FileError, did_you_mean
from bpt.base.formats import HEAD, JSON, FileFormat, recognise
from bpt.base.native_paths import native_path, windows_hint


class UnreadableError(Exception):
    """A file cannot be read; the message says why, without the path."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of the file at ``path``.

    Raises:
        UnreadableError: the file cannot be read.
    """
    try:
        return Path(native_path(os.fspath(path))).read_bytes()
    except FileNotFoundError:
        raise UnreadableError(_missing(Path(path))) from None
    except IsADirectoryError:
        raise UnreadableError("is a folder, not a file") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise UnreadableError("is not a file name") from None  # the name contains a null character


@contextmanager
def file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an UnreadableError of the context into a FileError that names ``path``."""
    try:
        yield
    except UnreadableError as error:
        raise FileError(path, str(error)) from None


def format_of(path: str | os.PathLike[str]) -> FileFormat | None:
    """Return the format of the file at ``path`` by its first bytes; None if it is unknown or unreadable."""
    try:
        with open(path, "rb") as file:
            return recognise(file.read(HEAD), os.fstat(file.fileno()).st_size)
    except (OSError, ValueError):
        return None


def refuse_file(path: str | os.PathLike[str], wanted: str, otherwise: str) -> FileError:
    """Return the error that the file at ``path`` has the wrong format; it names the format if it is known.

    Args:
        path: the file.
        wanted: the right format, with an article: "an HDF5 file".
        otherwise: the message if the format is unknown.
    """
    found = format_of(path)
    # A file of the right format has another fault.
    return FileError(path, otherwise if found is None or found.what == wanted else found.refuse(wanted))


def check_exists(path: str) -> None:
    """Raise the FileError of a reader unless there is a file at ``path``."""
    path = native_path(path)
    if not os.path.exists(path) or os.path.isdir(path):
        with file_errors(path):
            read_bytes(path)


def read_lines(path: str | os.PathLike[str], what: str) -> list[str]:
    """Return the lines of the text file at ``path``.

    Args:
        path: the file.
        what: the words after "a text file" in messages: "that lists images".

    Raises:
        UnreadableError: the file cannot be read.
        FileError: the file is no text in UTF-8; the error names its format if it is known.
    """
    content = read_bytes(path)
    found = recognise(content[:HEAD], len(content))
    if found and found != JSON:
        raise FileError(path, found.refuse(f"a text file {what}"))
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise FileError(path, f"is not a text file {what} in UTF-8: it is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise FileError(path, f"is not a text file {what}") from None


def _missing(path: Path) -> str:
    if hint := windows_hint(str(path)):
        return f"no such file{hint}"
    try:
        names = [name for name in os.listdir(path.parent) if not (path.parent / name).is_dir()]
    except FileNotFoundError:
        return f'no such file: there is no folder "{path.parent}"'
    except OSError:
        return "no such file"
    return f"no such file{did_you_mean(path.name, names, folder=os.path.dirname(path))}"


def write_json(content: object, path: str) -> None:
    """Write ``content`` as JSON to the file at ``path``, completely or not at all.

    Raises:
        WriteError: it could not be written.
    """
    write_text(path, f"{json.dumps(content, indent=1, allow_nan=False)}\n")


def read_json(path: str, kind: str, format_number: int | None = None) -> JsonValue:
    """Return the content of the file at ``path``.

    Args:
        path: the file.
        kind: the word for such a file in messages: "profile".
        format_number: the "format" that the file must have; ``None``: it has none.

    Raises:
        FileError: the file is missing, is not JSON, or has another format; the error says where.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(path, f"is not a {kind}: it is not text") from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}:{error.lineno}:{error.colno}", f"is not a {kind}: {error.msg}") from None
    except RecursionError:
        raise FileError(path, f"is not a {kind}: it is nested too deep") from None
    top = JsonValue(path, kind, "", content)
    if format_number is not None and (number := top["format"].integer(least=0)) != format_number:
        reads = f"but this bpt reads a {kind} of format {format_number}; measure again"
        top["format"].refuse(f"is {number}, {reads}")
    return top


class JsonValue:
    """A value in a JSON file, and its path in the file: ``ranks[1].points[0].seconds``.

    Its methods return the value if it has the right type, and raise a FileError otherwise.
    """

    def __init__(self, path: str, kind: str, way: str, value: Any) -> None:
        self.path = path
        self.kind = kind
        self.way = way
        self.value = value

    def refuse(self, message: str) -> NoReturn:
        """Raise a FileError about this value; ``message`` follows its path."""
        raise FileError(self.path, f"{self.way or 'the file'} {message}")

    def __getitem__(self, name: str) -> JsonValue:
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        way = f"{self.way}.{name}" if self.way else name
        if name not in self.value:
            raise FileError(self.path, f"is not a whole {self.kind}: {way} is missing")
        return JsonValue(self.path, self.kind, way, self.value[name])

    def entries(self) -> list[JsonValue]:
        """Return the entries of a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            self.refuse("must be a list with at least one entry")
        return [
            JsonValue(self.path, self.kind, f"{self.way}[{index}]", value) for index, value in enumerate(self.value)
        ]

    def entries_of(self, name: str) -> list[JsonValue]:
        """Return the entries of a list in this object; none if the object does not have it."""
        return self[name].entries() if isinstance(self.value, dict) and name in self.value else []

    def integer(self, least: int) -> int:
        """Return a whole number of at least ``least``."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            self.refuse(f"must be a whole number of at least {least}, found {self._shown}")
        return self.value

    def seconds(self, zero: bool = True) -> float:
        """Return a number of at least 0; above 0 unless ``zero``."""
        value = self.value
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not number or (not value and not zero):
            self.refuse(f"must be a number {'of at least' if zero else 'above'} 0, found {self._shown}")
        return float(value)

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.value, str):
            self.refuse(f"must be a text, found {self._shown}")
        return self.value

    def settings(self) -> dict[str, str | int]:
        """Return an object of texts and whole numbers."""
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        for name, value in self.value.items():
            if not isinstance(value, str | int):
                JsonValue(self.path, self.kind, f"{self.way}.{name}", value).refuse("must be a text or a whole number")
        return self.value

    @property
    def _shown(self) -> str:
        return json.dumps(self.value)[:40]
