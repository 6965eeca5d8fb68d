"""Runs cases on targets, and stops at the first that bpt does not take well.

A case is a few bytes made from a seed and a number, so that any of them can be made again. A target hands it to bpt as
a user's file would come. bpt may take it or refuse it by a UserError or RunError; anything else is a failure: another
exception, a warning, too much time or too much memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import resource
import signal
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bpt.base.errors import RunError, UserError

MIB = 2**20
_ROOM = 4 * 2**30  # bytes of addresses that a case may reserve: above, allocations fail instead of filling the machine
_LONGEST_MESSAGE = 20_000  # characters: it is to be read


class Target(ABC):
    """A kind of file, and what bpt does with one.

    Attributes:
        name: for the command line and messages.
        suffix: of the file that a failing case is saved in.
        short: so many cases are run in the tests.
        seconds: that a case may take on a busy machine.
        memory: bytes that bpt may need for a case, beyond what the process has before it.
        folder: an empty one for files.
    """

    name: str
    suffix = ".bin"
    short = 200
    seconds = 60.0
    memory = 256 * MIB

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def case(self, rng: random.Random) -> bytes:
        """A new case; equal for equal states of ``rng``."""

    @abstractmethod
    def run(self, case: bytes) -> None:
        """Hand the case to bpt."""

    def file(self, case: bytes, name: str = "case") -> str:
        """The path of a file that holds ``case``."""
        path = self.folder / f"{name}{self.suffix}"
        path.write_bytes(case)
        return str(path)


@dataclass
class Tally:
    """What came of some cases."""

    cases: int = 0
    refused: int = 0
    seconds: float = 0.0
    worst_seconds: float = 0.0
    worst_memory: int = 0  # bytes

    @property
    def accepted(self) -> int:
        return self.cases - self.refused


class FailureError(AssertionError):
    """A case that bpt did not take well."""

    def __init__(self, target: Target, case: bytes, what: str) -> None:
        self.case = case
        shown = case if len(case) <= 400 else case[:400] + b"..."
        super().__init__(f"{target.name}: {what}\nThe case, {len(case)} bytes: {shown!r}")


class _HangError(BaseException):
    """A case has used up its time. Not an Exception, so that nothing under test catches it."""


class _Listener(logging.Handler):
    """Puts what is logged into words, as a real log would, and forgets it."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


def rng_of(target: Target, seed: int, number: int) -> random.Random:
    """The source of chance for case ``number``."""
    return random.Random(f"{target.name}/{seed}/{number}")


def run_cases(target: Target, seed: int, numbers: range, tally: Tally | None = None) -> Tally:
    """Make and run the cases ``numbers``; raises FailureError at the first that fails."""
    tally = tally or Tally()
    with _surroundings(target):
        for number in numbers:
            _run(target, target.case(rng_of(target, seed, number)), tally)
    return tally


def run_one(target: Target, case: bytes) -> Tally:
    """Run one case made by hand; raises FailureError if it fails."""
    tally = Tally()
    with _surroundings(target):
        _run(target, case, tally)
    return tally


@contextlib.contextmanager
def _surroundings(target: Target) -> Iterator[None]:
    """Bounds of the process, a log that is listened to, and the target's folder to work in."""
    log, listener = logging.getLogger("bpt"), _Listener()
    level, propagate, folder = log.level, log.propagate, os.getcwd()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    log.propagate = False
    resource.setrlimit(resource.RLIMIT_AS, (_reserved() + _ROOM, limits[1]))
    try:
        os.chdir(target.folder)
        yield
    finally:
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        log.removeHandler(listener)
        log.setLevel(level)
        log.propagate = propagate


def _run(target: Target, case: bytes, tally: Tally) -> None:
    before = _reset_peak()
    start = time.perf_counter()
    refused = False
    try:
        with warnings.catch_warnings(record=True) as warned, _alarm(target.seconds):
            warnings.resetwarnings()  # what is silenced while a case runs stays silent
            warnings.simplefilter("always")
            try:
                target.run(case)
            except (UserError, RunError) as error:
                refused = True
                message = str(error)
    except _HangError:
        raise FailureError(target, case, f"takes more than {target.seconds:g} s") from None
    except Exception as error:
        raise FailureError(target, case, f"raised {type(error).__name__}: {error}") from error
    seconds, memory = time.perf_counter() - start, _peak() - before
    if warned:
        raise FailureError(target, case, f"warned: {warned[0].category.__name__}: {warned[0].message}")
    if memory > target.memory:
        raise FailureError(target, case, f"took {memory // MIB} MiB of memory")
    if refused and not 0 < len(message) <= _LONGEST_MESSAGE:
        raise FailureError(target, case, f"was refused with {len(message)} characters of message")
    tally.cases += 1
    tally.refused += refused
    tally.seconds += seconds
    tally.worst_seconds = max(tally.worst_seconds, seconds)
    tally.worst_memory = max(tally.worst_memory, memory)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise _HangError here after so many seconds. Only in a process's main thread; elsewhere nothing happens."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _status(field: str) -> int:
    """Bytes, by Linux's /proc/self/status; 0 where there is none."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(field.encode()):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _reserved() -> int:
    return _status("VmSize:")


def _peak() -> int:
    return _status("VmHWM:")


def _reset_peak() -> int:
    """Let the peak of resident memory begin anew; returns what there is now."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak()
