"""Disks without room."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_files_only() -> Iterator[None]:
    """Files of this process may not grow beyond 100 bytes: a real failure of the system's write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir()}


def full_disk(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """From now on syncing a file whose name contains ``word`` finds the disk full."""
    real = os.fsync

    def sync(descriptor: int) -> None:
        if word in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
