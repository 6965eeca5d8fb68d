"""Every check of the communicators' contract, over MPI: one launch does them for 1, 2, 3 and 4 ranks."""

from __future__ import annotations

import sys

import pytest

from tests.support.comm_contract import CHECKS
from tests.support.marks import slow
from tests.support.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi


@pytest.mark.parametrize("options", [(), slow(("--pieces",)), ("--patient",)], ids=["usual", "pieces", "patient"])
def test_contract(options: tuple[str, ...]) -> None:
    done = mpirun(4, [sys.executable, "-m", "tests.mpi.contract_ranks", *options], timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    passed = [f"passed {check.__name__} {size}" for size in (1, 2, 3, 4) for check in CHECKS]
    assert sorted(done.stdout.splitlines()) == sorted(passed)
