"""Threads that start later take memory from the heap of the process, where the C library can be told so."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from bpt.base.malloc_settings import share_heap

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has such heaps")

# Prints how many heaps the C library has when four threads hold memory, all at once.
PROGRAM = """
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
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=True
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
