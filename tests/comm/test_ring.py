"""Ring all-reduce over threads, whose sends wait for their receivers, and over the serial communicator."""

from __future__ import annotations

import pytest

from bpt.comm import ring
from bpt.comm.serial import SerialCommunicator
from tests.comm.ring_checks import CHECKS, Check
from tests.doubles.thread_ranks import run_ranks

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@every_check
def test_serial(check: Check) -> None:
    check(SerialCommunicator())


@every_check
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("chunk", [ring.CHUNK, 24])
def test_threads(check: Check, size: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "CHUNK", chunk)
    run_ranks(size, check)
