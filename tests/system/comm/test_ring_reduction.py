"""Ring all-reduce over threads, whose sends wait for their receivers, and over the serial communicator."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.system.comm import ring_reduction as ring
from bpt.system.comm.base import Buffer, Communicator, Request
from bpt.system.comm.ring_reduction import ring_allreduce
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.ring_checks import CHECKS, Check

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


@every_check
@pytest.mark.parametrize(("chunk", "block"), [(ring.CHUNK, 4 * ring.CHUNK), (24, 64)])
def test_two_hosts_make_room_for_a_block(check: Check, chunk: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are larger than messages: 130,000 of 64 bytes took longer than a busy machine was given."""
    monkeypatch.setattr(ring, "CHUNK", chunk)
    monkeypatch.setattr(ring, "BLOCK", block)
    run_ranks(2, check, hosts=["a", "b"])


def test_room_is_made_before_the_first_message_is_awaited() -> None:
    """Of a pair on two hosts for all three messages of a piece, else for two."""

    def awaited(comm: Communicator) -> list[int]:
        made: list[int] = []
        irecv = comm.Irecv

        def noted(buffer: Buffer, source: int, tag: int = 0) -> Request:
            made.append(len(made))
            request = irecv(buffer, source, tag)
            wait = request.Wait

            def waits() -> None:
                found.append(len(made))
                wait()

            request.Wait = waits  # type: ignore[method-assign]
            return request

        found: list[int] = []
        comm.Irecv = noted  # type: ignore[method-assign]
        ring_allreduce(comm, np.ones(6 * ring.CHUNK // 8))
        return found

    for hosts, first in ((["a", "b"], 3), (["a", "a"], 2)):
        for found in run_ranks(2, awaited, hosts=hosts):
            assert found[0] == first
