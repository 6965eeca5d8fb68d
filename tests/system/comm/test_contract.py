"""Every check of the contract, over the communicators that need no launcher."""

from __future__ import annotations

import pytest

from bpt.system.comm.serial import SerialCommunicator
from tests.support.comm_contract import CHECKS, Check
from tests.support.doubles.thread_ranks import run_ranks


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_serial(check: Check) -> None:
    check(SerialCommunicator())


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_threads(check: Check, size: int) -> None:
    run_ranks(size, check)
