"""What is counted."""

from __future__ import annotations

import numpy as np

from bpt.engine.instructions import ExchangeGradients, Forward
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Traffic
from tests.support.comm_contract.values import counts_of
from tests.support.doubles.seen import Seen


def check_bytes_counted(comm: Communicator) -> None:
    """Payload by the plain algorithms: see Traffic."""
    size, rank, others = comm.size, comm.rank, comm.size - 1
    counts = counts_of(size)
    whole, own = sum(counts), counts[rank]
    four = np.float32
    seen = Seen(comm)
    with comm.events.during(Forward(1)):
        comm.Barrier()
        comm.Bcast(np.zeros(6, four), root=0)
        comm.Bcast(np.zeros(6, four), root=0)
    with comm.events.during(ExchangeGradients(0)):
        comm.Reduce(np.zeros(5, four), root=0)
        comm.Allreduce(np.zeros(12, np.float64))  # 12 · 8 bytes are divisible by 1 to 4 ranks
        comm.Gatherv(np.zeros(own, four), np.zeros(whole, four) if rank == 0 else None, counts, 0)
        comm.Scatterv(np.zeros(whole, four) if rank == 0 else None, np.zeros(own, four), counts, 0)
        comm.Allgatherv(np.zeros(own, four), np.zeros(whole, four), counts)
        comm.Reduce_scatter(np.zeros(whole, four), np.zeros(own, four), counts)
        # Each rank sends rank + 1 elements to each rank.
        to, back = [rank + 1] * size, [r + 1 for r in range(size)]
        comm.Alltoallv(np.zeros(sum(to), four), to, np.zeros(sum(back), four), back)
    traffic = seen.calls()
    seconds = [entry.seconds for entry in traffic.values()]
    assert all(0 <= s < 60 for s in seconds)
    for entry in traffic.values():
        entry.seconds = 0.0
    root = rank == 0
    assert traffic == {
        ("F1", "Barrier"): Traffic(1, 0, 0),
        ("F1", "Bcast"): Traffic(2, 48 * others, 0) if root else Traffic(2, 0, 48),
        ("X0", "Reduce"): Traffic(1, 0, 20 * others) if root else Traffic(1, 20, 0),
        ("X0", "Allreduce"): Traffic(1, 192 * others // size, 192 * others // size),
        ("X0", "Gatherv"): Traffic(1, 0, 4 * (whole - own)) if root else Traffic(1, 4 * own, 0),
        ("X0", "Scatterv"): Traffic(1, 4 * (whole - own), 0) if root else Traffic(1, 0, 4 * own),
        ("X0", "Allgatherv"): Traffic(1, 4 * own * others, 4 * (whole - own)),
        ("X0", "Reduce_scatter"): Traffic(1, 4 * (whole - own), 4 * own * others),
        ("X0", "Alltoallv"): Traffic(1, 4 * (rank + 1) * others, 4 * (sum(back) - rank - 1)),
    }
    assert seen.calls() == {}


def check_bytes_counted_of_messages(comm: Communicator) -> None:
    """What made communicators send counts with the first one's; waiting counts with what started the transfer."""
    if comm.size == 1:
        return
    seen = Seen(comm)
    twin = comm.Dup()
    if comm.rank == 0:
        twin.Isend(np.zeros(3), 1).Wait()
        comm.Send(np.zeros(4), 1)
    elif comm.rank == 1:
        twin.Irecv(np.zeros(3), 0).Wait()
        comm.Recv(np.zeros(4), 0)
    traffic = {key: (entry.calls, entry.sent, entry.received) for key, entry in seen.calls().items()}
    sends = {("", "Isend"): (1, 24, 0), ("", "Send"): (1, 32, 0)}
    receives = {("", "Irecv"): (1, 0, 24), ("", "Recv"): (1, 0, 32)}
    assert traffic == (sends if comm.rank == 0 else receives if comm.rank == 1 else {})
