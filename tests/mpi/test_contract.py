"""The communicators' contract, ring all-reduce and trees, over MPI: one launch does all checks for 1 to 4 ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from tests.mpi.contract_ranks import CHECKS
from tests.support.marks import slow
from tests.support.mpirun import mpirun, needs_mpi

# Messages of more than so many bytes wait for their receivers.
LITTLE_IS_EAGER = {"OMPI_MCA_btl_sm_eager_limit": "128"}


@needs_mpi
@pytest.mark.parametrize(
    ("kind", "option", "environment"),
    [
        ("contract", "", {}),
        slow("contract", "--pieces", {}),
        ("contract", "--patient", {}),
        ("sleep", "--patient", {}),
        slow("ring", "", {}),
        slow("ring", "--pieces", {}),
        ("ring", "--patient", LITTLE_IS_EAGER),
    ],
)
def test_contract(kind: str, option: str, environment: Mapping[str, str]) -> None:
    done = mpirun(4, [sys.executable, "-m", "tests.mpi.contract_ranks", kind, option], env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    passed = [f"passed {check.__name__} {size}" for size in (1, 2, 3, 4) for check in CHECKS[kind]]
    assert sorted(done.stdout.splitlines()) == sorted(passed)
