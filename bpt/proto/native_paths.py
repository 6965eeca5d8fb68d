"""Paths that were written on Windows, read on other machines: a backslash separates folders there.

A path that exists as it is written is never changed: a file name may have backslashes here.
"""

from __future__ import annotations

import ntpath
import os
import re
from collections.abc import Sequence

from google.protobuf.message import Message

from bpt.proto.fields import is_message, is_repeated

PATHS = frozenset(
    (
        "source", "mean_file", "root_folder", "label_map_file", "name_size_file", "output_directory", "video_file",
        "net", "train_net", "test_net", "weights", "profile", "choice",
    )
)  # fmt: skip
"""The fields of nets and solvers that name a file or folder to be read."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def native_path(path: str, folders: Sequence[str] = ("",)) -> str:
    r"""Return ``path`` with ``/`` for each ``\``, if only that exists (in one of ``folders``); else ``path``."""
    if "\\" not in path or os.sep == "\\" or any(_exists(folder, path) for folder in folders):
        return path
    slashed = path.replace("\\", "/")
    return slashed if any(_exists(folder, slashed) for folder in folders) else path


def base_name(path: str) -> str:
    r"""Return the last part of a path that was written on any machine, behind ``/`` or ``\``."""
    return ntpath.basename(path)


def windows_hint(path: str) -> str:
    """Return the end of a message that nothing is at ``path``, if it is written as on Windows; else nothing."""
    if os.sep == "\\" or not ("\\" in path or _DRIVE.match(path)):
        return ""
    if _DRIVE.match(path):
        return '; it is a path of Windows: write where the file lies on this machine, with "/"'
    return '; it is written as on Windows: here "/" separates folders, not "\\"'


def use_native_paths(message: Message, written_in: str) -> list[str]:
    """Change the paths in a net or a solver that exist here only with ``/``; return what was changed, for the log.

    Args:
        written_in: the text's file, beside which files are looked for, too.
    """
    changed: dict[str, None] = {}
    _change(message, ("", os.path.dirname(written_in)), changed)
    return list(changed)


def _change(message: Message, folders: Sequence[str], changed: dict[str, None]) -> None:
    for field, value in message.ListFields():
        if is_message(field):
            for each in value if is_repeated(field) else (value,):
                _change(each, folders, changed)
        elif field.name in PATHS and field.cpp_type == field.CPPTYPE_STRING:
            values = list(value) if is_repeated(field) else [value]
            native = [native_path(each, folders) for each in values]
            if native == values:
                continue
            changed.update(
                {f'{field.name} "{a}" is read as "{b}"': None for a, b in zip(values, native, strict=True) if a != b}
            )
            if is_repeated(field):
                getattr(message, field.name)[:] = native
            else:
                setattr(message, field.name, native[0])


def native_prefix(prefix: str) -> str:
    r"""Return the start of names of files to be written with ``/`` for each ``\``, if that leads to a folder.

    A prefix under which there are snapshots as it is stays.
    """
    slashed = prefix.replace("\\", "/")
    if slashed == prefix or os.sep == "\\" or not os.path.isdir(os.path.dirname(slashed) or "."):
        return prefix
    folder, name = os.path.split(prefix)
    return prefix if any(other.startswith(f"{name}_iter_") for other in os.listdir(folder or ".")) else slashed


def _exists(folder: str, path: str) -> bool:
    return os.path.exists(os.path.join(folder, path))
