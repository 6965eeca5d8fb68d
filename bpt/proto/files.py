"""Reads whole files that the user named, with one clear sentence for each way in which that fails.

JSON files that bpt has written may have been edited by people: an error says which value is wrong, and how.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from bpt.errors import FileError, did_you_mean


class UnreadableError(Exception):
    """The file cannot be read; the message says why, without the path."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of the file at ``path``. Raises UnreadableError."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise UnreadableError(_missing(Path(path))) from None
    except IsADirectoryError:
        raise UnreadableError("is a folder, not a file") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise UnreadableError("is not a file name") from None  # it contains a null character


def check_there(path: str) -> None:
    """Raise a FileError unless there is a file at ``path``, in the words of one that reads it."""
    if not os.path.exists(path) or os.path.isdir(path):
        try:
            read_bytes(path)
        except UnreadableError as error:
            raise FileError(path, str(error)) from None


def _missing(path: Path) -> str:
    try:
        names = [name for name in os.listdir(path.parent) if not (path.parent / name).is_dir()]
    except FileNotFoundError:
        return f'no such file: there is no folder "{path.parent}"'
    except OSError:
        return "no such file"
    return f"no such file{did_you_mean(path.name, names, folder=os.path.dirname(path))}"


def read_json(path: str, kind: str) -> Place:
    """The content of the file at ``path``.

    Args:
        kind: what the file should be, in a word, for messages: "profile".

    Raises:
        FileError: it is missing, or not JSON; it says where.
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
    return Place(path, kind, "", content)


class Place:
    """A value in a JSON file, and the way to it: ``ranks[1].points[0].seconds``.

    Its methods give the value if it is what they say, and raise a FileError if it is not.
    """

    def __init__(self, path: str, kind: str, way: str, value: Any) -> None:
        self.path = path
        self.kind = kind
        self.way = way
        self.value = value

    def refuse(self, message: str) -> NoReturn:
        """Raise a FileError: this value ``message``."""
        raise FileError(self.path, f"{self.way or 'the file'} {message}")

    def __getitem__(self, name: str) -> Place:
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        way = f"{self.way}.{name}" if self.way else name
        if name not in self.value:
            raise FileError(self.path, f"is not a whole {self.kind}: {way} is missing")
        return Place(self.path, self.kind, way, self.value[name])

    def entries(self) -> list[Place]:
        """The entries of a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            self.refuse("must be a list with at least one entry")
        return [Place(self.path, self.kind, f"{self.way}[{index}]", value) for index, value in enumerate(self.value)]

    def integer(self, least: int) -> int:
        """A whole number of at least ``least``."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            self.refuse(f"must be a whole number of at least {least}, found {self._shown}")
        return self.value

    def seconds(self, zero: bool = True) -> float:
        """A number of at least 0, or above it."""
        value = self.value
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not number or (not value and not zero):
            self.refuse(f"must be a number {'of at least' if zero else 'above'} 0, found {self._shown}")
        return float(value)

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            self.refuse(f"must be a text, found {self._shown}")
        return self.value

    def settings(self) -> dict[str, str | int]:
        """An object of texts and whole numbers."""
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        for name, value in self.value.items():
            if not isinstance(value, str | int):
                Place(self.path, self.kind, f"{self.way}.{name}", value).refuse("must be a text or a whole number")
        return self.value

    @property
    def _shown(self) -> str:
        return json.dumps(self.value)[:40]
