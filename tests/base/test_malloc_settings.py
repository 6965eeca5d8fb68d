"""Memory that is freed stays with the process, and threads share its heap, where the C library can be told so."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from bpt.base.malloc_settings import keep_freed_memory, share_heap

# Pages that the system has to clear while 20 arrays of 32 MiB are made and freed, one after the other.
MALLOC_PROGRAM = """
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
    program = MALLOC_PROGRAM.format(keep=keep)
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


needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has such heaps")

# Prints how many heaps the C library has when four threads hold memory, all at once.
HEAP_PROGRAM = """
import ctypes, os, sys, tempfile, threading
from bpt.base.malloc_settings import share_heap

if "share" in sys.argv:
    assert share_heap()
library = ctypes.CDLL(None)
library.malloc.restype = library.fdopen.restype = ctypes.c_void_p
met = threading.Barrier(5)

def hold():
    taken = ctypes.c_void_p(library.malloc(ctypes.c_size_t(5000)))
    met.wait(30)  # all have taken theirs
    met.wait(30)  # they are counted
    library.free(taken)

threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads:
    thread.start()
met.wait(30)
with tempfile.TemporaryFile() as file:
    stream = ctypes.c_void_p(library.fdopen(os.dup(file.fileno()), b"w"))
    assert library.malloc_info(0, stream) == 0
    library.fclose(stream)
    file.seek(0)
    print(file.read().count(b"<heap nr="))
met.wait(30)
"""


def heaps(*arguments: str) -> int:
    """In a process of its own, since what a process has said to its C library cannot be taken back."""
    done = subprocess.run(
        [sys.executable, "-c", HEAP_PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


@needs_glibc
def test_threads_take_memory_from_the_heap_of_the_process() -> None:
    assert heaps("share") == 1
    assert heaps() > 1


@pytest.mark.parametrize(
    ("name", "library"),
    [("darwin", None), ("linux", OSError), ("linux", lambda _: object()), ("linux", lambda _: Refusing())],
    ids=["another system", "no library", "no mallopt", "mallopt refuses"],
)
def test_nothing_happens_where_the_library_is_another(
    name: str, library: Callable[[object], object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(what: object) -> object:
        assert library is not None, "no library is looked for"
        if library is OSError:
            raise OSError
        return library(what)

    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(ctypes, "CDLL", load)
    assert share_heap() is False


class Refusing:
    def mallopt(self, which: int, value: int) -> int:
        assert (which, value) == (-8, 1)
        return 0
