"""Ring all-reduce and trees over MPI: one launch does all checks for 2, 3 and 4 ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from tests.support import ring_checks, tree_checks
from tests.support.marks import slow
from tests.support.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi

# Messages of more than so many bytes wait for their receivers.
LITTLE_IS_EAGER = {"OMPI_MCA_btl_sm_eager_limit": "128"}


@pytest.mark.parametrize(
    ("options", "environment"),
    [slow((), {}), (("--patient",), LITTLE_IS_EAGER), slow(("--chunks",), {})],
    ids=["as usual", "patient, little is eager", "chunks"],
)
def test_ring(options: tuple[str, ...], environment: Mapping[str, str]) -> None:
    done = mpirun(4, [sys.executable, "-m", "tests.mpi.ring_ranks", *options], env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    passed = [
        f"passed {check.__name__} {size}" for size in (2, 3, 4) for check in (*ring_checks.CHECKS, *tree_checks.CHECKS)
    ]
    assert sorted(done.stdout.splitlines()) == sorted(passed)
