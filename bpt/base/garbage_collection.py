"""When Python's collector looks for garbage: not while modules are imported, and never among what they have brought.

torch alone brings 300,000 objects, which stay to the end. The collector would look through them while they come, which
is a fifteenth of the time that importing torch takes, and through all of them now and then while training: for a tenth
of a second, on one rank after the other, while the others wait.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def importing() -> Iterator[None]:
    """Let the collector rest, for modules to be imported; they stay out of its sight."""
    if gc.get_freeze_count() or not gc.isenabled():  # a program that calls several commands has imported them before
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@cache
def keep_what_is_there() -> None:
    """Take what there is by now out of the collector's sight; once a process."""
    gc.freeze()
