"""The files and threads that this process holds."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def prefetchers() -> int:
    return sum(thread.name == "bpt prefetch" for thread in threading.enumerate())


def open_files(folder: Path) -> list[str]:
    """Files under ``folder`` that this process has open."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return [str(target) for link in links if link.exists() and str(target := link.resolve()).startswith(str(folder))]
