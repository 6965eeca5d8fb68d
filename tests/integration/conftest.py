"""What tests on the test bed share: a machine has one at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbeds import bed


@pytest.fixture
def alone() -> Iterator[None]:
    """This test has the machine's test bed for itself, and leaves none; another worker's tests wait."""
    with Path(tempfile.gettempdir(), "bpt-testbed-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if bed.remains():
            pytest.skip(f"a test bed is up on this machine: {', '.join(bed.remains())}")
        try:
            yield
        finally:
            bed.down()
            assert bed.remains() == []
