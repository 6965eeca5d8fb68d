"""The hosts' shares of the processor: a cgroup for each host, with a quota, and in it one for each job.

A job's cgroup also knows every process that the job has started, whatever that did to hide, so that none is left over.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bpt.base.errors import RunError
from scripts.testbeds.names import PREFIX

# The kernel hands out time once a period. Its usual 100 ms would let a host run at full speed for 25 ms and then stand
# for 75 ms; a short period makes the steps of a slow host even.
PERIOD = 10_000  # µs
_LEAST_QUOTA = 1_000  # µs, the kernel's
# Against the rest of the machine: what else runs here should not make a host slow, nor stand still for it.
_PRECEDENCE = 10
_PATIENCE = 10.0  # seconds, for what the kernel does at once unless something is very wrong


def quota(share: float) -> tuple[int, int]:
    """``(quota, period)`` in µs for a share in cores. The period grows where the quota would be below the kernel's."""
    period = max(PERIOD, round(_LEAST_QUOTA / share))
    return max(_LEAST_QUOTA, round(share * period)), period


@dataclass(frozen=True)
class Hierarchy:
    """Where the kernel's cpu controller is mounted, its version, 1 or 2, and the name of the cgroup of all hosts."""

    mount: Path
    version: int
    name: str = PREFIX

    @property
    def root(self) -> Path:
        """The test bed's cgroup, which holds those of its hosts."""
        return self.mount / self.name

    def host(self, name: str) -> Path:
        return self.root / name

    def add_host(self, name: str, share: float) -> None:
        """Make a host's cgroup with its quota.

        Raises:
            RunError: the kernel refuses.
        """
        amount, period = quota(share)
        group = self.host(name)
        try:
            self._delegate(self.mount)
            self.root.mkdir(exist_ok=True)
            self._weigh(self.root, _PRECEDENCE)
            self._delegate(self.root)
            group.mkdir()
            self._weigh(group, share)  # should the hosts want more than there is, all slow down alike
            if self.version == 2:
                (group / "cpu.max").write_text(f"{amount} {period}\n")
            else:
                (group / "cpu.cfs_period_us").write_text(f"{period}\n")
                (group / "cpu.cfs_quota_us").write_text(f"{amount}\n")
        except OSError as error:
            raise RunError(
                f"cannot give host {name!r} its share of the processor: {error}. It needs writable cgroups with the "
                "cpu controller and its quota (inside a container: --privileged --cgroupns=host)"
            ) from error

    def _weigh(self, group: Path, weight: float) -> None:
        """Set a cgroup's weight among its neighbours; 1 is the kernel's usual one."""
        if self.version == 2:
            (group / "cpu.weight").write_text(f"{min(max(1, round(weight * 100)), 10_000)}\n")
        else:
            (group / "cpu.shares").write_text(f"{max(2, round(weight * 1024))}\n")

    def _delegate(self, group: Path) -> None:
        """Version 2 hands the controller down only where the parent says so."""
        if self.version == 2:
            control = group / "cgroup.subtree_control"
            if "cpu" not in control.read_text().split():
                control.write_text("+cpu\n")

    def remains(self) -> list[str]:
        return [str(self.root)] if self.root.exists() else []

    def remove(self) -> None:
        """Kill what runs in the test bed's cgroups, and remove them."""
        remove(self.root)


def find(mounts: str | None = None) -> Hierarchy:
    """The hierarchy that has the cpu controller.

    Args:
        mounts: the text of ``/proc/self/mountinfo``; ``None``: this process's.

    Raises:
        RunError: there is none.
    """
    if mounts is None:
        mounts = Path("/proc/self/mountinfo").read_text()
    unified = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        # The kernel writes a blank in a path as \040.
        mount = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), left.split(" ")[4]))
        if kind == "cgroup" and "cpu" in options.split(","):
            return Hierarchy(mount, 1)
        if kind == "cgroup2" and unified is None and "cpu" in _words(mount / "cgroup.controllers"):
            unified = Hierarchy(mount, 2)
    if unified is None:
        raise RunError("no cgroup hierarchy with the cpu controller is mounted here; the hosts' shares need one")
    return unified


def processes(group: Path) -> list[int]:
    """The processes in a cgroup and in those below it; none if there is no such cgroup."""
    # A process that this one cannot see (it is in another pid namespace) is written as 0.
    return [pid for folder in _groups(group) for pid in map(int, _words(folder / "cgroup.procs")) if pid]


def program(pid: int) -> str:
    """The name of the program that a process runs; empty if it has ended meanwhile."""
    return " ".join(_words(Path(f"/proc/{pid}/comm")))


def end(group: Path, grace: float = 0.0) -> int:
    """Wait ``grace`` seconds for the processes of a cgroup to end, then kill the others; returns how many.

    Raises:
        RunError: one of them does not die.
    """
    _wait(processes(group), grace)
    killed: set[int] = set()
    deadline = time.monotonic() + _PATIENCE
    while found := processes(group):
        if time.monotonic() > deadline:
            raise RunError(f"processes {', '.join(map(str, found))} of the test bed do not die; are they stuck in I/O?")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        _wait(found, 1.0)
    return len(killed)


def remove(group: Path) -> None:
    """Kill what runs in a cgroup, and remove it with those below it.

    Raises:
        RunError: a process does not die.
    """
    end(group)
    for path in _groups(group):
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                path.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError as error:
                # The dead are taken off the books a moment later, and of that the kernel sends no word.
                if time.monotonic() > deadline:
                    raise RunError(f"{path}: cannot be removed: {error.strerror}") from error
                time.sleep(0.001)


def _groups(group: Path) -> list[Path]:
    """A cgroup and those below it, the innermost first; another ``testbed`` may be about to remove them."""
    return [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]  # which passes over what has gone


def _wait(pids: Iterable[int], timeout: float) -> None:
    """Wait until all the processes have ended, or the time is over."""
    with ExitStack() as stack:
        poll, running = select.poll(), 0
        for pid in pids:
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                stack.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
                running += 1
        deadline = time.monotonic() + timeout
        while running and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                poll.unregister(descriptor)
                running -= 1


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # it went away in between
        return []
