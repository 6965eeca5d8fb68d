"""A proxy process between a launcher and a rank that trains, which lets the rank write a snapshot when the job ends.

Open MPI's mpirun answers SIGINT, SIGTERM and SIGHUP with SIGTERM to its processes, and SIGKILL half a second later,
whatever its settings are. A snapshot takes longer. So the process that the launcher has started only passes signals on.
The rank is its child, in a process group of its own, which the launcher does not signal. It outlives the proxy only
after the proxy has passed SIGTERM on, and only until it has stopped in good order or a limit has passed.

This module imports nothing that starts threads, since the process forks before numpy and torch are loaded.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_RANK = "OMPI_COMM_WORLD_RANK"
_LAUNCHERS = ("prterun", "prted", "mpirun", "mpiexec", "orted")
_PR_SET_PDEATHSIG = 1
_SYS_PIDFD_GETFD = 438
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_LOOK = 0.5  # seconds between two looks at whether the launcher has suspended the proxy
_WATCH = 0.05  # seconds between two looks at how the stop proceeds


class Proxied:
    """A rank that has a proxy.

    Attributes:
        launcher: the process that started the proxy.
        stopping: the time at which the proxy passed SIGTERM on (``time.monotonic``); 0.0 before that.
        watch: called repeatedly from then on; returns why the rank cannot stop in good order, "" if it still can.
        reports: whether this rank reports.
        lost_ranks: ranks of this host whose processes had ended before this rank had to stop.
    """

    def __init__(self, launcher: int, pipe: int, reports: bool) -> None:
        self.launcher = launcher
        self.stopping = 0.0
        self.watch: Callable[[], str] = str
        self.reports = reports
        self.lost_ranks: list[int] = []
        self._proxy = os.getppid()
        self._pipe = pipe
        self._output = _output_of_launcher(launcher)
        threading.Thread(target=self._listen, name="proxy", daemon=True).start()

    def _listen(self) -> None:
        while not select.select([self._pipe], [], [], _LOOK)[0]:
            if _is_stopped(self._proxy):  # the launcher has suspended it (Ctrl-Z); SIGCONT comes from the proxy
                os.kill(os.getpid(), signal.SIGSTOP)
        if not os.read(self._pipe, 1):  # launcher or proxy was killed: no rank may remain as an orphan
            os.kill(os.getpid(), signal.SIGKILL)
        self.stopping = time.monotonic()
        if self._output >= 0:  # the pipe to the launcher ends with it
            for number in (1, 2):
                os.dup2(self._output, number)
        if self.reports:
            _tell(
                f"SIGTERM: training stops after the current iteration. Process {os.getpid()} writes its snapshot even "
                "if the launcher ends before"
            )
        while not (reason := self.watch()):
            time.sleep(_WATCH)
        if self.reports:
            _tell(f"error: {reason}")
        os.kill(os.getpid(), signal.SIGKILL)


_OWN: list[Proxied] = []  # at most one


def own_proxy() -> Proxied | None:
    """Return the state of this rank's proxy; ``None`` without a proxy."""
    return _OWN[0] if _OWN else None


def is_stopping() -> bool:
    """Return whether the proxy has passed SIGTERM on, so that the launcher may disappear at any moment."""
    return bool(_OWN and _OWN[0].stopping)


def launcher() -> int:
    """Return the process that started this rank."""
    return _OWN[0].launcher if _OWN else os.getppid()


def is_useful(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process was started by a launcher that kills processes which do not end at once."""
    return sys.platform.startswith("linux") and _RANK in environment


def fork_proxy() -> None:
    """Fork this process into a proxy, which never returns from here, and the rank, which does."""
    if not is_useful() or _OWN:
        return
    started_by = os.getppid()
    mine, told = os.pipe()
    watched = {*_PASSED_ON, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    process = os.fork()
    if process:
        os.close(mine)
        _serve(process, told, watched, started_by)
    os.close(told)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _OWN.append(Proxied(_launcher_above(started_by), mine, os.environ[_RANK] == "0"))


def _serve(process: int, told: int, watched: set[signal.Signals], started_by: int) -> NoReturn:
    """Pass signals on to ``process`` until it ends, and end with its status."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != started_by:  # the launcher died before
        os._exit(1)
    continued = False
    while True:
        if continued:  # once more, since the rank may just have stopped itself
            continued = False
            found = signal.sigtimedwait(watched, 2 * _LOOK)
            if found is None:
                _send(process, signal.SIGCONT)
                continue
            number = found.si_signo
        else:
            number = signal.sigwait(watched)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                _end_like(status)
            continue
        if number == signal.SIGTERM:
            with suppress(OSError):  # the process has just ended
                os.write(told, b"T")
        continued = number == signal.SIGCONT
        _send(process, number)


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError):  # the process has just ended
        os.kill(process, number)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _launcher_above(process: int) -> int:
    """Return the launcher that started ``process``, perhaps by a script; ``process`` if none is found."""
    above = process
    while above > 1:
        state = _stat(above)
        if state is None:
            break
        if state[0] in _LAUNCHERS:
            return above
        above = state[2]
    return process


def _output_of_launcher(process: int) -> int:
    """Return a file number for the standard error of a launcher; -1 if it has none, or it cannot be opened."""
    state = _stat(process)
    if state is None or state[0] not in _LAUNCHERS:
        return -1
    with suppress(AttributeError, OSError):  # the same open file, with its position, since both write to it
        handle = os.pidfd_open(process)
        try:
            number = int(ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, handle, 2, 0))
        finally:
            os.close(handle)
        if number >= 0:
            return number
    try:  # an old kernel, or one that allows it to a parent only
        return os.open(f"/proc/{process}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def _is_stopped(process: int) -> bool:
    state = _stat(process)
    return state is not None and state[1] == "T"


def _stat(process: int) -> tuple[str, str, int] | None:
    """Return name, state and parent of a process; ``None`` if it has ended."""
    try:
        name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    state, parent = rest.split()[:2]
    return name, state, int(parent)


def _tell(message: str) -> None:
    with suppress(OSError):
        os.write(2, f"{message}\n".encode())
