"""How OpenMP's threads wait for each other: they spin while cores are free, and sleep at once when others want them.

Between two layers a thread that spins is ready at once. But a thread whose partner waits for a core spins for
milliseconds, and takes the core's time from it and from other programs.

GNU's library reads how long to spin only once, when it is loaded. But it hardly spins (100 rounds) while the process
has more OpenMP threads than CPUs. So ``SleepingThreads`` holds a second team of threads, which sleep, for as long as
other programs want the cores, and lets ``SpinPolicy`` change the way during the run.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache

from bpt.system.comm.cores import allowed_cpus, cpu_time
from bpt.system.comm.neighbours import CpuTime, HostLoad

LOG = logging.getLogger(__name__)

LLVM_BLOCKTIME = "1"  # ms; LLVM's library cannot be told later
INTERVAL = 1.0  # seconds from one look at the machine's load to the next
CALM = 3  # looks in a row that find the cores free, before threads spin again


def set_omp_wait_policy(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set how long LLVM's threads spin, unless the environment does. To be called before torch is loaded."""
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("KMP_BLOCKTIME", LLVM_BLOCKTIME)


@cache
def gnu_openmp() -> ctypes.CDLL | None:
    """Return the GNU OpenMP library that torch has loaded; ``None`` if it is another one, or there are several."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/maps", encoding="utf-8") as maps:
                paths = {line.split()[-1] for line in maps if "libgomp" in line}
            if len(paths) == 1:
                return ctypes.CDLL(paths.pop())
        except OSError:
            pass
    return None


class SleepingThreads:
    """A team of OpenMP threads that sleep, so that the process has more of them than CPUs and none of them spins.

    It lives as long as the thread that started it. Leaving the context ends both.

    Args:
        library: GNU's OpenMP.
        threads: their number; with those of the process at least one more than ``allowed_cpus``.
    """

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self._released = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(library, threads), name="bpt-sleepers", daemon=True)
        self._thread.start()
        self._started.wait()

    def release(self) -> None:
        """End the threads."""
        self._released.set()
        self._thread.join()

    def _hold(self, library: ctypes.CDLL, threads: int) -> None:
        work = ctypes.cast(library.omp_get_thread_num, ctypes.c_void_p)  # any function without effect
        library.GOMP_parallel(work, None, ctypes.c_uint(threads), ctypes.c_uint(0))
        self._started.set()
        self._released.wait()


class SpinPolicy:
    """Lets this process's OpenMP threads spin or sleep, by what the machine does.

    Args:
        library: GNU's OpenMP.
        started: the CPU time when the process began, for a first decision at once.
        threads: returns the number of threads with which the process computes.
    """

    def __init__(self, library: ctypes.CDLL, started: CpuTime | None, threads: Callable[[], int]) -> None:
        self._library = library
        self._last = started
        self._threads = threads
        self._calm = 0
        self._sleepers: SleepingThreads | None = None

    def run(self, end: threading.Event) -> None:
        """Look at the machine's load, and follow it, until ``end``."""
        while not end.is_set():
            self.follow(CpuTime.now())
            end.wait(INTERVAL)
        if self._sleepers is not None:
            self._sleepers.release()

    def follow(self, now: CpuTime | None) -> None:
        """Let threads sleep if others have wanted the cores since the last look, and spin after some calm ones."""
        reason = self._reason(now)
        self._last = now
        self._calm = 0 if reason else self._calm + 1
        if reason and self._sleepers is None:
            LOG.info("OpenMP's threads sleep as soon as they wait: %s", reason)
            self._sleepers = SleepingThreads(self._library, len(allowed_cpus()) + 1)
        elif self._sleepers is not None and self._calm >= CALM:
            LOG.info("OpenMP's threads spin while they wait: no other program wants the cores")
            self._sleepers.release()
            self._sleepers = None

    def _reason(self, now: CpuTime | None) -> str:
        """Return why waiting threads are to sleep; "": they may spin."""
        threads, cpus = self._threads(), os.cpu_count() or 1
        if threads > cpu_time():
            return f"{threads} threads share the time of {cpu_time():.3g} CPUs"
        if self._last is None or now is None or threads == 1:
            return ""
        load = HostLoad("", cpus, threads, now.others_since(self._last))
        return f"other programs keep {load.others:.2g} of {cpus} CPUs busy" if load.is_busy else ""


@contextmanager
def spin_while_cores_are_free(
    started: CpuTime | None, threads: Callable[[], int], environment: Mapping[str, str] = os.environ
) -> Iterator[None]:
    """Let OpenMP's threads spin or sleep by the machine's load, where the library can and the environment lets it.

    Args:
        started: the CPU time when the process began, for a first decision at once.
        threads: returns the number of threads with which the process computes.
        environment: of the process. OMP_WAIT_POLICY or GOMP_SPINCOUNT in it stay in force.
    """
    library = gnu_openmp()
    if library is None or not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}.isdisjoint(environment):
        yield
        return
    end = threading.Event()
    policy = SpinPolicy(library, started, threads)
    thread = threading.Thread(target=policy.run, args=(end,), name="bpt-spin-policy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
