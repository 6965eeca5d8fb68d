"""The test bed of this machine, of which there is one at a time: made as a whole, or not at all, and removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from bpt.base.errors import RunError, UsageError
from scripts.testbeds import cgroups, network, programs
from scripts.testbeds.hosts import Host, hosts_file
from scripts.testbeds.link import Link
from scripts.testbeds.names import ASIDE, FOLDER, HOSTS_FILE, LOCK, SCRATCH, STATE


@dataclass(frozen=True)
class TestBed:
    """What ``up`` was told."""

    __test__ = False  # pytest: not a test

    hosts: tuple[Host, ...]
    link: Link

    def __str__(self) -> str:
        return f"hosts {','.join(map(str, self.hosts))}; {self.link}"


@contextmanager
def locked() -> Iterator[None]:
    """Let one ``testbed`` at a time change what is here; another waits. The lock ends with the process."""
    while True:
        descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Whoever had the lock may have removed the file, and then a third may hold one that is new.
        with suppress(FileNotFoundError):
            if os.stat(LOCK).st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)
    try:
        yield
    finally:
        LOCK.unlink(missing_ok=True)
        os.close(descriptor)


def since() -> str:
    """When the test bed that is up was made, in words; "": there is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(STATE.stat().st_mtime))
    except FileNotFoundError:
        return ""


def load() -> TestBed | None:
    """The test bed that is up; ``None``: there is none, or only the remains of one."""
    try:
        state = json.loads(STATE.read_text())
    except FileNotFoundError:
        return None
    return TestBed(tuple(Host(**host) for host in state["hosts"]), Link(**state["link"]))


def remains() -> list[str]:
    """All that a test bed, whole or not, has left on this machine: files, cgroups, network namespaces."""
    folder = [str(FOLDER)] if FOLDER.exists() else []
    groups = _groups()
    return [*folder, *(groups.remains() if groups else []), *network.remains()]


def why_not() -> str | None:
    """Why there can be no test bed on this machine, and what to do; ``None``: there can."""
    reason = programs.why_not()
    if reason is None:
        try:
            cgroups.find()
        except RunError as error:
            return str(error)
    return reason


def require() -> None:
    """Refuse where there can be no test bed.

    Raises:
        RunError: says why, and what to do.
    """
    reason = why_not()
    if reason:
        raise RunError(reason)


def require_bed() -> TestBed:
    """The test bed that is up.

    Raises:
        RunError: there is none, or this process may not use it.
    """
    require()
    bed = load()
    if bed is None:
        raise RunError(_unfinished() if remains() else "no test bed is up: scripts/testbed up --hosts 'a:1.0,b:0.25'")
    return bed


def up(bed: TestBed) -> None:
    """Make the test bed. Whatever stops this halfway, what was made by then is removed again.

    Raises:
        UsageError: a host wants more than this machine has.
        RunError: there is one already, or this machine refuses.
    """
    require()
    cores = len(os.sched_getaffinity(0))
    for host in bed.hosts:
        if host.share > cores:
            raise UsageError(f'--hosts: host "{host.name}" wants {host.share:g} cores; this machine has {cores}')
    groups = cgroups.find()
    with locked():
        if present := load():
            why = f"a test bed is up already, since {since()} ({present})"
            raise RunError(f"{why}; remove it first: scripts/testbed down")
        if remains():
            raise RunError(_unfinished())
        try:
            SCRATCH.mkdir(parents=True)
            ASIDE.mkdir()
            HOSTS_FILE.write_text(hosts_file(bed.hosts))
            network.build(bed.hosts, bed.link)
            for host in bed.hosts:
                groups.add_host(host.name, host.share)
            # Last, and at once: where there is a state, there is a whole test bed.
            draft = STATE.with_suffix(".draft")
            draft.write_text(json.dumps(asdict(bed), indent=2))
            draft.rename(STATE)
        except BaseException:
            _remove()
            raise


def down() -> list[str]:
    """End what runs on the test bed and remove it, or what a crash has left of it; returns what was there.

    Raises:
        RunError: this machine refuses.
    """
    require()
    with locked():
        found = remains()
        _remove()
    return found


def _remove() -> None:
    STATE.unlink(missing_ok=True)  # first: what follows may stop halfway, and then this is no test bed any more
    if groups := _groups():
        groups.remove()
    network.remove()
    shutil.rmtree(FOLDER, ignore_errors=True)


def _groups() -> cgroups.Hierarchy | None:
    try:
        return cgroups.find()
    except RunError:  # no cgroups, and so nothing in them
        return None


def _unfinished() -> str:
    return (
        f"remains of a test bed that was not finished or not wholly removed are here ({', '.join(remains())}); "
        "clear them away: scripts/testbed down"
    )
