"""OpenMP's threads spin while cores are free, and sleep while other programs want them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from typing import cast

import pytest

from bpt.system.comm.cores import allowed_cpus
from bpt.system.comm.neighbours import CpuTime
from bpt.system.comm.openmp_waiting import (
    CALM,
    SpinPolicy,
    gnu_openmp,
    set_omp_wait_policy,
    spin_while_cores_are_free,
)

OWN_POLICIES = ({"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7", "KMP_BLOCKTIME": "8"})

SPINNING = """
import sys, time, torch
from bpt.system.comm.openmp_waiting import SleepingThreads, gnu_openmp

torch.set_num_threads(2)
data = torch.zeros(1 << 16)

def of_the_other_thread():
    begin = time.process_time() - time.thread_time()
    for _ in range(50):
        torch.relu(data)
        sum(range(100_000))  # meanwhile the other thread waits
    return time.process_time() - time.thread_time() - begin

torch.relu(data)
spins = of_the_other_thread()
sleepers = SleepingThreads(gnu_openmp(), int(sys.argv[1]))
sleeps = of_the_other_thread()
sleepers.release()
print(spins, sleeps, of_the_other_thread())
"""


class Library:
    """Notes the teams that are started."""

    def __init__(self) -> None:
        self.teams: list[int] = []
        self.omp_get_thread_num = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)

    def GOMP_parallel(self, work: object, data: object, threads: ctypes.c_uint, flags: object) -> None:  # noqa: N802
        self.teams.append(threads.value)


def looks(policy: SpinPolicy, *others: float) -> None:
    """Let ``policy`` find other programs on so many CPUs, one second after the other."""
    now = policy._last
    assert now is not None
    for busy in others:
        now = replace(now, moment=now.moment + 1, machine=now.machine + busy)
        policy.follow(now)


def test_threads_sleep_while_others_want_the_cores_and_spin_after_some_calm_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    library = Library()
    policy = SpinPolicy(cast(ctypes.CDLL, library), CpuTime(0.0, 0.0, 0.0), lambda: 3)
    looks(policy, 0.0, 0.4, 1.0)
    assert policy._sleepers is None  # there is room for all
    looks(policy, 2.0)
    assert policy._sleepers is not None
    assert library.teams == [len(allowed_cpus()) + 1]
    looks(policy, *[0.0] * (CALM - 1), 3.0, *[0.0] * (CALM - 1))
    assert policy._sleepers is not None
    looks(policy, 0.0)
    assert policy._sleepers is None
    looks(policy, 2.0)
    assert len(library.teams) == 2


@pytest.mark.skipif(gnu_openmp() is None or len(allowed_cpus()) < 2, reason="only GNU's OpenMP on several CPUs")
def test_sleeping_threads_take_no_time_and_spinning_ones_do() -> None:
    environment = {name: value for name, value in os.environ.items() if name[:4] not in ("OMP_", "GOMP")}
    command = [sys.executable, "-c", SPINNING, str(len(allowed_cpus()) + 1)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    spins, sleeps, again = map(float, run.stdout.split())
    assert sleeps < 0.5 * min(spins, again)


@pytest.mark.parametrize("own", OWN_POLICIES)
def test_the_users_own_policy_stays(own: dict[str, str]) -> None:
    said = dict(own)
    set_omp_wait_policy(said)
    assert said == own
    with spin_while_cores_are_free(None, pytest.fail, own):
        pass


def test_threads_of_llvms_library_sleep_soon() -> None:
    free: dict[str, str] = {}
    set_omp_wait_policy(free)
    assert int(free["KMP_BLOCKTIME"]) < 200  # LLVM's default
