"""Announce the training processes of this host to the ``bpt run`` that started the job.

``bpt run`` then sends signals to one of these processes and not to the launcher. A rank stops all others in good order;
a launcher, or a script around it, could kill them or leave them running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bpt.base.private_folder import is_private

FOLDER = "BPT_RUN_FOLDER"
"""The environment variable that names the folder for announcements."""

_PREFIX = "rank_"


@contextmanager
def announced() -> Iterator[None]:
    """Announce this process, for the time of the context, to the ``bpt run`` of this host that started the job."""
    named = os.environ.get(FOLDER)
    if not named or not is_private(Path(named)):  # bpt run is on another host
        yield
        return
    path = Path(named, f"{_PREFIX}{os.getpid()}")
    with suppress(OSError):
        path.touch()
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove the announcements that killed ranks left."""
    for path in folder.glob(f"{_PREFIX}*"):
        path.unlink(missing_ok=True)


def send(folder: Path, number: int) -> bool:
    """Send a signal to the first announced rank that is alive, and return whether there was one."""
    for path in sorted(folder.glob(f"{_PREFIX}*")):
        with suppress(OSError, ValueError):  # it has just ended
            os.kill(int(path.name.removeprefix(_PREFIX)), number)
            return True
    return False
