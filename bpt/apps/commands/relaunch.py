"""``bpt run``: start a job, and start it again when it fails. ``bpt join`` restarts the job on other ranks.

The job itself resumes from its newest snapshot, in memory or on disk. This module uses only its exit status.
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
from bpt.base.atomic import write_text
from bpt.base.errors import UsageError, WriteError
from bpt.base.private_folder import is_private
from bpt.base.signals import STOP_SIGNAL
from bpt.system.comm.launch import die_with_parent

LOG = logging.getLogger("bpt")

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_INTERVAL = 0.1  # seconds between two checks of the job
_LONGEST_PAUSE = 60.0  # seconds before a restart, at most


@dataclass(frozen=True)
class RestartLimits:
    """Limits of the number and frequency of restarts.

    Attributes:
        restarts: largest number of restarts.
        within: counts only the restarts of this many seconds; 0: all.
        wait: seconds before the first restart. Each further pause is twice as long, a minute at most.
    """

    restarts: int = 3
    within: float = 0.0
    wait: float = 1.0


@dataclass
class Relaunch:
    """A job that is restarted until it succeeds.

    Attributes:
        argv: the command that starts the job now.
        limits: the limits of its restarts.
    """

    argv: list[str]
    limits: RestartLimits = RestartLimits()
    _past: deque[float] = field(default_factory=deque)  # times of the restarts
    _ended_by: signal.Signals | None = None  # the signal that this process received
    _job: subprocess.Popen[bytes] | None = None  # the job, once it has been started
    _unsent: deque[int] = field(default_factory=deque)  # signals that came while the job was started
    _before: list[str] | None = None  # the command before the last bpt join
    _asked_rank: bool = False  # whether a rank of the job has received a signal

    def run(self) -> int:
        """Run the job until it needs no restart, and return the exit status of its last start.

        Raises:
            UsageError: there is no such program.
        """
        check_resumes(self.argv)
        LOG.info("Starting %s; bpt join %d -- COMMAND continues on other ranks", shlex.join(self.argv), os.getpid())
        with self._passing_on(), _request_file(os.getpid()) as request:
            while True:
                start = time.monotonic()
                status = self._run_job(request)
                if asked := _take_request(request):
                    self._before, self.argv = self.argv, asked
                    LOG.info("The job has ended with status %d; starting %s", status, shlex.join(asked))
                elif not self._is_to_restart(status, time.monotonic() - start):
                    return status

    def _run_job(self, request: Path) -> int:
        """Run the job once, and return its exit status."""
        started_by_run.forget(request.parent)
        self._asked_rank, self._job = False, None
        if self._ended_by and not self._unsent:  # it was for the job before
            self._unsent.append(self._ended_by)
        try:
            job = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # so that it gets a Ctrl-C once, from this process
                env={**os.environ, started_by_run.FOLDER: str(request.parent)},
                preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509  there are no threads here
            )
        except OSError as error:
            raise UsageError(f"{self.argv[0]}: {error.strerror}; name the program that starts the job") from None
        self._job = job
        while self._unsent:
            self._send(job, self._unsent.popleft())
        asked = False
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = job.wait(_POLL_INTERVAL)
                return 128 - status if status < 0 else status
            if not asked and request.exists():
                asked = True
                LOG.info("bpt join has asked for other ranks; asking the job to stop")
                self._send(job, STOP_SIGNAL)

    def _send(self, job: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal to a rank, which stops all ranks. Without ranks, or the second time, send it to the job."""
        first, self._asked_rank = not self._asked_rank, True
        if first and started_by_run.send(_path_of(os.getpid()).parent, number):
            return
        with suppress(ProcessLookupError):
            job.send_signal(number)

    def _is_to_restart(self, status: int, seconds: float) -> bool:
        """Return whether a job that has ended must be started again, after the pause before the restart."""
        if not status or self._ended_by:
            return False
        failure = f"The job has failed with status {status} after {seconds:.1f} s"
        if self._before and status == UsageError.exit_status:
            self.argv, self._before = self._before, None
            LOG.warning("%s: the command of bpt join is wrong; continuing with %s", failure, shlex.join(self.argv))
            return True
        if status == UsageError.exit_status:
            LOG.warning("%s: the command line or a file is wrong, so a restart does not help", failure)
            return False
        now, limits = time.monotonic(), self.limits
        while self._past and limits.within and now - self._past[0] > limits.within:
            self._past.popleft()
        if len(self._past) >= limits.restarts:
            recent = f" in the last {limits.within:g} s" if limits.within else ""
            LOG.warning("%s; not restarting: it was restarted %d times%s", failure, len(self._past), recent)
            return False
        pause = min(limits.wait * 2 ** len(self._past), _LONGEST_PAUSE)
        self._past.append(now)
        LOG.warning("%s; restart %d of %d in %g s", failure, len(self._past), limits.restarts, pause)
        return self._wait(pause)

    def _wait(self, seconds: float) -> bool:
        """Wait, and return whether no signal came meanwhile."""
        end = time.monotonic() + seconds
        while not self._ended_by and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_INTERVAL))
        return not self._ended_by

    @contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Pass the signals of this process on to the job, which then ends and is not started again.

        A signal that arrives while the job is started waits until it has been started, and then goes to a rank, too.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            self._ended_by = signal.Signals(number)
            if self._job is None:
                self._unsent.append(number)
            else:
                self._send(self._job, number)

        before = {number: signal.signal(number, handle) for number in _PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def check_resumes(argv: Sequence[str]) -> None:
    """Refuse a ``bpt train`` that would start from the beginning after each failure.

    Raises:
        UsageError: the command has no --snapshot.
    """
    trains = "train" in argv and any(Path(word).name in ("bpt", "caffe") for word in argv[: argv.index("train")])
    if trains and not any(word.lstrip("-").split("=")[0] == "snapshot" for word in argv if word.startswith("-")):
        raise UsageError("bpt train would start from the beginning after a failure: give it --snapshot auto")


def join(process: int, argv: list[str]) -> None:
    """Ask the ``bpt run`` with the id ``process`` to stop its job and to continue with ``argv``.

    Raises:
        UsageError: this user has no such process here, or it has a request already.
    """
    check_resumes(argv)
    request = _path_of(process)
    if not is_private(request.parent):
        raise UsageError(f"process {process} is no bpt run of this user that is running on this host")
    if request.exists():
        raise UsageError(f"process {process} is already about to continue with other ranks")
    write_text(request, json.dumps(argv))


@contextmanager
def _request_file(process: int) -> Iterator[Path]:
    """Yield the file for requests of ``bpt join``, in a folder that only this user can enter.

    Raises:
        WriteError: the folder cannot be made, or belongs to another user.
    """
    request = _path_of(process)
    try:
        request.parent.mkdir(mode=0o700, exist_ok=True)  # a killed process with the same id may have left one
    except OSError as error:
        raise WriteError(request.parent, error.strerror or error) from None
    if not is_private(request.parent):
        raise WriteError(request.parent, "is not a folder of this user alone; remove it")
    request.unlink(missing_ok=True)
    try:
        yield request
    finally:
        request.unlink(missing_ok=True)
        started_by_run.forget(request.parent)
        request.parent.rmdir()


def _path_of(process: int) -> Path:
    return Path(tempfile.gettempdir(), f"bpt_run_{process}", "join.json")


def _take_request(request: Path) -> list[str]:
    """Remove a request of ``bpt join`` and return its command; an empty list without a request."""
    try:
        argv = json.loads(request.read_bytes())
        request.unlink()
    except FileNotFoundError:
        return []
    return [str(word) for word in argv]
