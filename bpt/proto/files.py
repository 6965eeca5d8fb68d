"""Reads whole files that the user named, with one clear sentence for each way in which that fails."""

from __future__ import annotations

import os
from pathlib import Path

from bpt.errors import did_you_mean


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


def _missing(path: Path) -> str:
    try:
        names = [name for name in os.listdir(path.parent) if not (path.parent / name).is_dir()]
    except FileNotFoundError:
        return f'no such file: there is no folder "{path.parent}"'
    except OSError:
        return "no such file"
    return f"no such file{did_you_mean(path.name, names)}"
