"""Messages from one rank to another."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from bpt.system.comm.base import Communicator
from tests.support.comm_contract.values import MOVED, run_of


def check_send_and_recv_round_a_ring(comm: Communicator) -> None:
    if comm.size == 1:
        return
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for dtype in MOVED:
        receive = np.zeros((2, 2), dtype)
        send = run_of(comm.rank, 4, dtype).reshape(2, 2)
        if comm.rank == 0:  # one must start
            comm.Send(send, right, tag=7)
            comm.Recv(receive, left, tag=7)
        else:
            comm.Recv(receive, left, tag=7)
            comm.Send(send, right, tag=7)
        assert_array_equal(receive, run_of(left, 4, dtype).reshape(2, 2))


def check_isend_and_irecv(comm: Communicator) -> None:
    """All to all at once, each pair by two tags, the later one waited for first."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    received = {(other, tag): np.zeros(3, np.float32) for other in others for tag in (1, 2)}
    waiting = [comm.Irecv(buffer, other, tag) for (other, tag), buffer in received.items()]
    sent = [run_of(100 * tag + comm.rank, 3) for tag in (1, 2) for _ in others]  # kept until they are sent
    waiting += [
        comm.Isend(sent[(tag - 1) * len(others) + i], other, tag) for tag in (1, 2) for i, other in enumerate(others)
    ]
    for request in reversed(waiting):
        request.Wait()
        assert request.Test()
    for (other, tag), buffer in received.items():
        assert_array_equal(buffer, run_of(100 * tag + other, 3))


def check_messages_do_not_overtake(comm: Communicator) -> None:
    if comm.size == 1:
        return
    if comm.rank == 0:
        for number in range(5):
            for target in range(1, comm.size):
                comm.Send(np.array([number]), target, tag=3)
    else:
        buffers = [np.zeros(1, np.int64) for _ in range(5)]
        for request in [comm.Irecv(buffer, 0, tag=3) for buffer in buffers]:
            request.Wait()
        assert [int(buffer[0]) for buffer in buffers] == [0, 1, 2, 3, 4]
