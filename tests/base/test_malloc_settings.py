"""Memory that is freed stays with the process, where the C library can be told so."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from bpt.base.malloc_settings import keep_freed_memory

# Pages that the system has to clear while 20 arrays of 32 MiB are made and freed, one after the other.
PROGRAM = """
import resource, numpy
from bpt.base.malloc_settings import keep_freed_memory
if {keep}:
    keep_freed_memory({keep})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    numpy.ones(2**22)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: int) -> int:
    # An environment that does not back arrays with huge pages, which would hide the difference.
    environment = {"NUMPY_MADVISE_HUGEPAGE": "0"}
    program = PROGRAM.format(keep=keep)
    return int(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's mallopt")
def test_pages_are_cleared_once_and_not_for_every_array() -> None:
    usual, smaller, kept = faults(keep=0), faults(keep=2**24), faults(keep=2**26)
    assert kept < usual / 5
    assert smaller > usual / 2  # only blocks of up to 16 MiB were to be kept


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's mallopt")
def test_glibc_agrees() -> None:
    assert keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()


def test_a_library_without_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


def test_no_library_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", fail)
    assert not keep_freed_memory()


RELEASE = """
import numpy
from bpt.base.malloc_settings import keep_freed_memory, release_free_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
keep_freed_memory()
numpy.ones(2**23)
kept = resident()
assert release_free_memory()
print(kept - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc_trim")
def test_kept_memory_can_be_given_back() -> None:
    program = subprocess.run([sys.executable, "-c", RELEASE], capture_output=True, check=True)
    assert int(program.stdout) > 2**25  # most of the array's 64 MiB
