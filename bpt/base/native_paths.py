r"""Convert paths that were written on Windows, where ``\`` separates folders, for other machines.

A path that exists as it is written is never changed, because a file name may contain backslashes here.
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
    r"""Return the part after the last ``/`` or ``\`` of a path that was written on any machine."""
    return ntpath.basename(path)


def windows_hint(path: str) -> str:
    """Return a hint for the error that ``path`` is missing, if it is written as on Windows; else ""."""
    if os.sep == "\\" or not ("\\" in path or _DRIVE.match(path)):
        return ""
    if _DRIVE.match(path):
        return '; it is a path of Windows: write the path of the file on this machine, with "/"'
    return '; it is written as on Windows: on this machine "/" separates folders, not "\\"'


def native_prefix(prefix: str) -> str:
    r"""Return the prefix of files to write with ``/`` for each ``\``, if its folder exists then.

    A prefix that has snapshots as it is written is returned unchanged.
    """
    slashed = prefix.replace("\\", "/")
    if slashed == prefix or os.sep == "\\" or not os.path.isdir(os.path.dirname(slashed) or "."):
        return prefix
    folder, name = os.path.split(prefix)
    return prefix if any(other.startswith(f"{name}_iter_") for other in os.listdir(folder or ".")) else slashed


def _exists(folder: str, path: str) -> bool:
    return os.path.exists(os.path.join(folder, path))
