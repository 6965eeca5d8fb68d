"""Whether a folder of a known name, in a place where all users may write, is the user's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_private(folder: Path) -> bool:
    """Return whether ``folder`` exists and only this user can write to it; a link to a folder does not count."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
