"""Who serves and who computes."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.comm.threads import run_ranks
from bpt.proto import bpt_pb2 as pb
from bpt.solvers.outer.roles import Roles


def roles(text: str, ranks: int) -> list[Roles]:
    param = text_format.Parse(text, pb.ParallelParameter())

    def work(world: Communicator) -> Roles:
        return Roles.of(param, world)

    return run_ranks(ranks, work)


@pytest.mark.parametrize("text", ["", "server: DEDICATED"])
def test_rank_0_only_serves(text: str) -> None:
    found = roles(text, 3)
    assert [each.workers for each in found] == [(1, 2)] * 3
    assert [each.rank for each in found] == [0, 1, 2]
    assert [each.serves for each in found] == [True, False, False]
    assert [each.worker for each in found] == [None, 0, 1]
    assert str(found[0]) == "server on rank 0; 2 computing nodes"
    assert str(roles(text, 2)[0]) == "server on rank 0; 1 computing node"


def test_rank_0_computes_as_well() -> None:
    found = roles("server: COLOCATED", 3)
    assert [each.workers for each in found] == [(0, 1, 2)] * 3
    assert [each.serves for each in found] == [True, False, False]
    assert [each.worker for each in found] == [0, 1, 2]
    assert str(found[0]) == "server on rank 0, which computes as well; 3 computing nodes"


@pytest.mark.parametrize("text", ["server: DEDICATED", "server: COLOCATED"])
def test_a_process_that_is_alone_has_both_roles(text: str) -> None:
    found = Roles.of(text_format.Parse(text, pb.ParallelParameter()), SerialCommunicator())
    assert (found.workers, found.serves, found.worker) == ((0,), True, 0)
