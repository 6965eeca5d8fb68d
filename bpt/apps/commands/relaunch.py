"""``bpt run``: starts a job, and starts it again when it fails; ``bpt join`` has it started on other ranks.

The job itself goes on from its newest snapshot, in memory or on disk; here nothing is known of it but its exit status.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from bpt.apps.commands import started_by_run
from bpt.base.atomic import atomic_file
from bpt.base.errors import UsageError, WriteError
from bpt.base.signals import STOP_SIGNAL
from bpt.system.comm.launch import die_with_parent
from bpt.train.state import in_memory

LOG = logging.getLogger("bpt")

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK = 0.1  # seconds from one look at the job to the next
_LONGEST = 60.0  # seconds before a restart, at most
_TAKEN = 10.0  # seconds in which a call to join is taken


@dataclass(frozen=True)
class RestartLimits:
    """How often a job is started again.

    Attributes:
        restarts: so often, and not more.
        within: counting those in so many seconds; 0: all.
        wait: seconds before the first restart; each further one of a series waits twice as long, a minute at most.
    """

    restarts: int = 3
    within: float = 0.0
    wait: float = 1.0


@dataclass
class Relaunch:
    """A job that is to come to its end.

    Attributes:
        argv: what is started now.
        limits: how often.
    """

    argv: list[str]
    limits: RestartLimits = RestartLimits()
    _past: deque[float] = field(default_factory=deque)  # when it was started again
    _ended_by: signal.Signals | None = None  # a signal that this process has got
    _unsent: deque[int] = field(default_factory=deque)  # signals that the job has not got yet
    _before: list[str] | None = None  # what ran until somebody asked for the ranks of now
    _asked_rank: bool = False  # whether a rank of the job has got a signal

    def run(self) -> int:
        """Return the exit status of the job that was the last one.

        Raises:
            UsageError: there is no such program.
        """
        check_goes_on(self.argv)
        LOG.info("Starting %s; bpt join %d -- COMMAND goes on with other ranks", shlex.join(self.argv), os.getpid())
        with self._passing_on(), _desk(os.getpid()) as desk:
            while True:
                start = time.monotonic()
                status = self._done(desk)
                if asked := _taken(desk):
                    self._before, self.argv = self.argv, asked
                    LOG.info("The job has ended with status %d; starting %s", status, shlex.join(asked))
                elif not self._is_to_restart(status, time.monotonic() - start):
                    return status

    def _done(self, desk: Path) -> int:
        """Run the job; returns its exit status."""
        started_by_run.forget(desk.parent)
        self._asked_rank = False
        if self._ended_by and not self._unsent:  # it was for the job before
            self._unsent.append(self._ended_by)
        try:
            job = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C comes to it once, from here
                env={**os.environ, started_by_run.FOLDER: str(desk.parent)},
                preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509  there are no threads here
            )
        except OSError as error:
            raise UsageError(f"{self.argv[0]}: {error.strerror}; name the program that starts the job") from None
        asked = False
        while True:
            while self._unsent:
                self._send(job, self._unsent.popleft())
            with suppress(subprocess.TimeoutExpired):
                status = job.wait(_LOOK)
                return 128 - status if status < 0 else status
            if not asked and desk.exists():
                asked = True
                LOG.info("Other ranks are to go on: the job is asked to stop")
                self._send(job, STOP_SIGNAL)

    def _send(self, job: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal to a rank of the job, which stops all of them; if there is none yet, or again, to the job."""
        first, self._asked_rank = not self._asked_rank, True
        if first and started_by_run.send(_path_of(os.getpid()).parent, number):
            return
        with suppress(ProcessLookupError):
            job.send_signal(number)

    def _is_to_restart(self, status: int, seconds: float) -> bool:
        """Return whether a job that has ended is to be started again; waits until then."""
        if not status or self._ended_by:
            return False
        told = f"The job has failed with status {status} after {seconds:.1f} s"
        if self._before and status == UsageError.exit_status:
            self.argv, self._before = self._before, None
            LOG.warning("%s: the command to join was wrong; going on as before with %s", told, shlex.join(self.argv))
            return True
        if status == UsageError.exit_status:
            LOG.warning("%s: the command line or a file is wrong, which a restart does not mend", told)
            return False
        now, limits = time.monotonic(), self.limits
        while self._past and limits.within and now - self._past[0] > limits.within:
            self._past.popleft()
        if len(self._past) >= limits.restarts:
            recent = f" in the last {limits.within:g} s" if limits.within else ""
            LOG.warning("%s; it was started again %d times%s, and is not any more", told, len(self._past), recent)
            return False
        pause = min(limits.wait * 2 ** len(self._past), _LONGEST)
        self._past.append(now)
        LOG.warning("%s; restart %d of %d in %g s", told, len(self._past), limits.restarts, pause)
        return self._pauses(pause)

    def _pauses(self, seconds: float) -> bool:
        """Wait; ``False``: a signal came meanwhile."""
        end = time.monotonic() + seconds
        while not self._ended_by and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        return not self._ended_by

    @contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Let the job have the signals that this process gets: it is to end, and is not started again.

        The handler only notes a signal. So one that arrives while the job is being made goes to a rank, too.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            self._ended_by = signal.Signals(number)
            self._unsent.append(number)

        before = {number: signal.signal(number, handle) for number in _PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def check_goes_on(argv: Sequence[str]) -> None:
    """Refuse a ``bpt train`` that would begin anew each time.

    Raises:
        UsageError: it has no --snapshot.
    """
    trains = "train" in argv and any(Path(word).name in ("bpt", "caffe") for word in argv[: argv.index("train")])
    if trains and not any(word.lstrip("-").split("=")[0] == "snapshot" for word in argv if word.startswith("-")):
        raise UsageError("bpt train would begin anew after a failure: give it --snapshot auto")


def join(process: int, argv: list[str]) -> None:
    """Let the ``bpt run`` that is ``process`` stop its job, and go on with ``argv``; returns when it knows.

    Raises:
        UsageError: there is none, or it has been asked for something else just now.
    """
    check_goes_on(argv)
    desk = _path_of(process)
    if not in_memory.is_own(desk.parent):
        raise UsageError(f"process {process} is no bpt run of this user on this host that is under way")
    if desk.exists():
        raise UsageError(f"process {process} is just about to go on with other ranks")
    with atomic_file(desk) as file:
        file.write(json.dumps(argv).encode())


@contextmanager
def _desk(process: int) -> Iterator[Path]:
    """Return where calls to join are left: in a folder that only this user can enter.

    Raises:
        WriteError: there can be none, or another user has made it.
    """
    desk = _path_of(process)
    try:
        desk.parent.mkdir(mode=0o700, exist_ok=True)  # one may be left of a killed process that had the same number
    except OSError as error:
        raise WriteError(desk.parent, error.strerror or error) from None
    if not in_memory.is_own(desk.parent):
        raise WriteError(desk.parent, "is not a folder of this user alone; remove it")
    desk.unlink(missing_ok=True)
    try:
        yield desk
    finally:
        desk.unlink(missing_ok=True)
        started_by_run.forget(desk.parent)
        desk.parent.rmdir()


def _path_of(process: int) -> Path:
    return Path(tempfile.gettempdir(), f"bpt_run_{process}", "join.json")


def _taken(desk: Path) -> list[str]:
    """Return the command that was left there; it is removed. None: an empty one."""
    try:
        argv = json.loads(desk.read_bytes())
        desk.unlink()
    except FileNotFoundError:
        return []
    return [str(word) for word in argv]
