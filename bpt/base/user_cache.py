"""The folder for what bpt measured on this machine, and can measure again if it is lost."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder ``bpt`` in the user's folder of caches, which may not exist yet; ``None`` without a home.

    It is ``$XDG_CACHE_HOME/bpt``, by default ``~/.cache/bpt`` (XDG Base Directory Specification).
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # the specification says to ignore other paths
        return Path(given, "bpt")
    try:
        return Path.home() / ".cache" / "bpt"
    except RuntimeError:
        return None
