"""A job: one command on the test bed, from its start until its last process has ended."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bpt.base.errors import RunError
from scripts.testbeds import cgroups
from scripts.testbeds.bed import TestBed, load, locked
from scripts.testbeds.enter import script
from scripts.testbeds.names import FOLDER

_AWAITED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD}
_GRACE = 10.0  # seconds that a job has to end after a signal
_LEAVING = 1.0  # seconds that a job's daemons on the other hosts have to end after it
_SI_KERNEL = 0x80  # the sender of a Ctrl-C at the terminal, which reaches the command, too
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Job:
    """A job's cgroup on each host, by the host's name, and the script that starts a command in them."""

    groups: Mapping[str, Path]
    enter: Path
    mask: frozenset[int]  # the signals that were blocked before it

    def run(self, host: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command on a host; SIGINT, SIGTERM, SIGHUP and SIGQUIT go to it.

        A second such signal, or 10 seconds after the first, ends it the hard way.

        Returns:
            its exit status; 128 + the signal's number if a signal killed it, as a shell says.
        """
        libc = ctypes.CDLL(None)

        def in_the_child() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # whatever kills this process ends the job, too
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

        words = [str(self.enter), host, "exec " + shlex.join(command)]  # so that signals reach it, and no shell
        # preexec_fn is refused because it may hang where there are threads; this process has one.
        child = subprocess.Popen(words, env=environment, preexec_fn=in_the_child)  # noqa: PLW1509
        deadline = None
        while child.poll() is None:
            told: signal.struct_siginfo | None
            if deadline is None:
                told = signal.sigwaitinfo(_AWAITED)
            else:
                told = signal.sigtimedwait(_AWAITED, max(0.0, deadline - time.monotonic()))
            if told is not None and told.si_signo == signal.SIGCHLD:
                continue
            if deadline is not None:  # a second signal, or the time is over
                child.kill()
            elif told and told.si_code != _SI_KERNEL:
                child.send_signal(told.si_signo)
            deadline = time.monotonic() + _GRACE
        return child.returncode if child.returncode >= 0 else 128 - child.returncode


@contextmanager
def make_job(bed: TestBed) -> Iterator[Job]:
    """Make a job's cgroups and script; in the end kill what is left of it, and remove them.

    Raises:
        RunError: the test bed has gone meanwhile, or a process does not die.
    """
    name = f"job-{os.getpid()}"
    folder = FOLDER / name
    # Blocked, they wait until Job.run fetches them: no handler, no polling, no moment in which one could be missed, and
    # none that could stop the clearing up.
    mask = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED))
    groups: dict[str, Path] = {}
    try:
        with locked():
            if load() != bed:
                raise RunError("the test bed was removed in the meantime")
            hierarchy = cgroups.find()
            for host in bed.hosts:
                group = groups[host.name] = hierarchy.host(host.name) / name
                cgroups.remove(group)  # of a job killed long ago that had this process's id
                group.mkdir()
            folder.mkdir(exist_ok=True)
            enter = folder / "enter"
            enter.write_text(script(groups, os.getcwd()))
            enter.chmod(0o700)
        yield Job(groups, enter, mask)
    finally:
        for group in groups.values():
            cgroups.end(group, _LEAVING)
            cgroups.remove(group)
        shutil.rmtree(folder, ignore_errors=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
