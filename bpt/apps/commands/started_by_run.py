"""What a job tells the ``bpt run`` that has started it: which processes of this host train.

Signals then go to one of them, not to the launcher: a rank lets all others stop with it, and a launcher, or a script
that has started it, might kill them or let them train on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bpt.train.state.in_memory import is_own

FOLDER = "BPT_RUN_FOLDER"
"""The variable that tells a job where to announce itself."""

_PREFIX = "rank_"


@contextmanager
def announced() -> Iterator[None]:
    """Let the ``bpt run`` of this host that has started this job, if any, know of this process meanwhile."""
    named = os.environ.get(FOLDER)
    if not named or not is_own(Path(named)):  # of another host, where the launcher has started this rank
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
    """Remove what killed ranks have left."""
    for path in folder.glob(f"{_PREFIX}*"):
        path.unlink(missing_ok=True)


def send(folder: Path, number: int) -> bool:
    """Send a signal to the first rank that has announced itself and lives; return whether there was one."""
    for path in sorted(folder.glob(f"{_PREFIX}*")):
        with suppress(OSError, ValueError):  # it has just ended
            os.kill(int(path.name.removeprefix(_PREFIX)), number)
            return True
    return False
