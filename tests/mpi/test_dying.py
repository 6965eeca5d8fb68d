"""Every kind of collective, in which a rank is killed: all others learn it, and none believes a wrong value."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.support.marks import slow
from tests.support.mpirun import mpirun, needs_mpi

pytestmark = needs_mpi

BUFFERS = ("Allreduce", "Reduce", "Bcast", "Gatherv", "Scatterv", "Alltoallv", "Reduce_scatter", "Barrier")


@pytest.mark.parametrize("patient", [(), slow("--patient")], ids=["usual", "patient"])
@pytest.mark.parametrize(
    ("kind", "victim"),
    [
        ("allgather", 0),
        slow("allgather", 1),
        slow("bcast", 0),
        slow("Allgatherv", 2),
        *(slow(kind, 1) for kind in BUFFERS),
    ],
)
def test_all_others_learn_of_the_loss(kind: str, victim: int, patient: str | tuple[()]) -> None:
    """Survivors of an allgather once unpickled what their buffers held, or took it for the value."""
    seconds = random.Random(f"{kind} {victim} {patient}").uniform(0.1, 0.3)
    argv = [sys.executable, str(Path(__file__).with_name("dying_ranks.py")), kind, str(victim), str(seconds)]
    done = mpirun(3, [*argv, *([patient] if patient else [])], timeout=60, options=("--with-ft", "ulfm"))
    assert done.stdout.split("\n")[:-1] == ["lost", "lost"], done.stdout
