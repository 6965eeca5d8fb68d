"""Finds and removes old snapshots of a run by ``max_snapshots``."""

from __future__ import annotations

import contextlib
import logging
import os
import re

from bpt.base.errors import BptError
from bpt.train.state.resuming import read_state
from bpt.train.state.writing import files_of

LOG = logging.getLogger("bpt")


def of_run(prefix: str, run: str, until: int) -> list[str]:
    """Return the solver states under ``prefix`` that the start of training ``run`` wrote, oldest first.

    Args:
        until: largest number of iterations of the states to return.
    """
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"_iter_(\d+)\.solverstate(\.h5)?")
    found: list[tuple[int, str]] = []
    for match in filter(None, map(pattern.fullmatch, os.listdir(folder or "."))):
        path = os.path.join(folder, match[0])
        with contextlib.suppress(BptError):  # a damaged state may belong to another run, so it stays
            if int(match[1]) <= until and read_state(path).run == run:
                found.append((int(match[1]), path))
    return [path for _, path in sorted(found)]


def remove_all_but(written: list[str], newest: int) -> None:
    """Remove the files of all but the newest of some solver states, given oldest first, and their list entries.

    A file that cannot be removed is reported, and stays.
    """
    while len(written) > newest:
        for path in files_of(written.pop(0)):  # the state first, because a state must always have its weights
            try:
                os.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                LOG.warning("%s: an old snapshot that cannot be removed: %s", path, error.strerror or error)
