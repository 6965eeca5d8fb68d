"""Paths that were written on Windows, read on other machines: a backslash separates folders there.

A path that exists as it is written is never changed: a file name may have backslashes here.
"""

from __future__ import annotations

import ntpath
import os
import re
from collections.abc import Sequence

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
