"""What every Communicator must do: plain functions that each rank calls with its communicator.

They are run over the serial and the thread communicator by ``test_contract.py``, and over MPI by
``tests/mpi/test_contract.py``. Expected values are worked out from rank and size by hand.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bpt.comm.base import Buffer, Communicator
from bpt.comm.counters import Traffic
from bpt.comm.courier import Courier
from bpt.comm.grid import ProcessGrid
from bpt.errors import UsageError

Check = Callable[[Communicator], None]
SUMMED = (np.float32, np.float64, np.int32, np.int64, np.uint8)
MOVED = (*SUMMED, np.float16, np.bool_, np.int8)


def counts_of(size: int) -> list[int]:
    """Uneven counts, zeros among them: 3, 0, 2, 5."""
    return [3, 0, 2, 5][:size]


def run_of(rank: int, count: int, dtype: type = np.float32) -> Buffer:
    """What ``rank`` contributes: 10 rank + 1, 10 rank + 2, ..."""
    return (10 * rank + 1 + np.arange(count)).astype(dtype)


def check_rank_and_size(comm: Communicator) -> None:
    assert comm.allgather(comm.rank) == list(range(comm.size))
    assert comm.host
    assert 0 <= comm.rank < comm.size


def check_bcast(comm: Communicator) -> None:
    for root in range(comm.size):
        for dtype in MOVED:
            buffer = run_of(comm.rank, 5, dtype)
            comm.Bcast(buffer, root)
            assert_array_equal(buffer, run_of(root, 5, dtype))


def check_bcast_of_a_matrix_and_of_nothing(comm: Communicator) -> None:
    buffer = np.full((2, 3), comm.rank, np.float32)
    comm.Bcast(buffer, comm.size - 1)
    assert_array_equal(buffer, np.full((2, 3), comm.size - 1, np.float32))
    comm.Bcast(np.empty(0, np.float32), 0)
    comm.Bcast(scalar := np.array(float(comm.rank)), 0)
    assert scalar == 0


def check_reduce(comm: Communicator) -> None:
    # The sum over r of (10 r + 1 + i) is 10 · size (size - 1) / 2 + size (1 + i).
    expected = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(4))
    for root in range(comm.size):
        for dtype in SUMMED:
            buffer = run_of(comm.rank, 4, dtype)
            comm.Reduce(buffer, root)
            assert_array_equal(buffer, expected if comm.rank == root else run_of(comm.rank, 4, dtype))


def check_allreduce(comm: Communicator) -> None:
    expected = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(6)).reshape(2, 3)
    for dtype in SUMMED:
        buffer = run_of(comm.rank, 6, dtype).reshape(2, 3)
        comm.Allreduce(buffer)
        assert_array_equal(buffer, expected)
    comm.Allreduce(np.empty(0, np.float32))


def check_allreduce_is_equal_on_all_ranks_to_the_last_bit(comm: Communicator) -> None:
    for count in (1, 7, 1000, 20_011):  # libraries take another algorithm for each
        values = np.random.default_rng(comm.rank).standard_normal(count).astype(np.float32)
        comm.Allreduce(values)
        everywhere = comm.allgather(values.tobytes())
        assert everywhere == [everywhere[0]] * comm.size
        exact = sum(np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(comm.size))
        np.testing.assert_allclose(values, exact, rtol=0, atol=1e-5)


def check_gatherv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    expected = np.concatenate([run_of(rank, count) for rank, count in enumerate(counts)])
    for root in range(comm.size):
        for dtype in MOVED:
            receive = np.zeros(sum(counts), dtype) if comm.rank == root else None
            comm.Gatherv(run_of(comm.rank, counts[comm.rank], dtype), receive, counts, root)
            if receive is not None:
                assert_array_equal(receive, expected.astype(dtype))


def check_scatterv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    start = sum(counts[: comm.rank])
    for root in range(comm.size):
        for dtype in MOVED:
            send = np.arange(sum(counts)).astype(dtype) if comm.rank == root else None
            receive = np.zeros(counts[comm.rank], dtype)
            comm.Scatterv(send, receive, counts, root)
            assert_array_equal(receive, np.arange(start, start + counts[comm.rank]).astype(dtype))


def check_allgatherv(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    expected = np.concatenate([run_of(rank, count) for rank, count in enumerate(counts)])
    for dtype in MOVED:
        receive = np.zeros(sum(counts), dtype)
        comm.Allgatherv(run_of(comm.rank, counts[comm.rank], dtype), receive, counts)
        assert_array_equal(receive, expected.astype(dtype))


def check_alltoallv(comm: Communicator) -> None:
    # Rank s sends (s + 2 r) mod 4 elements to rank r: 100 s + 10 r, and on.
    def length(source: int, target: int) -> int:
        return (source + 2 * target) % 4

    def message(source: int, target: int) -> Buffer:
        return 100 * source + 10 * target + np.arange(length(source, target))

    ranks = range(comm.size)
    for dtype in (np.float32, np.int64, np.float16):
        send = np.concatenate([message(comm.rank, r) for r in ranks]).astype(dtype)
        send_counts = [length(comm.rank, r) for r in ranks]
        receive_counts = [length(r, comm.rank) for r in ranks]
        receive = np.zeros(sum(receive_counts), dtype)
        comm.Alltoallv(send, send_counts, receive, receive_counts)
        assert_array_equal(receive, np.concatenate([message(r, comm.rank) for r in ranks]).astype(dtype))


def check_alltoallv_of_nothing(comm: Communicator) -> None:
    none = [0] * comm.size
    comm.Alltoallv(np.empty(0, np.float32), none, np.empty(0, np.float32), none)


def check_reduce_scatter(comm: Communicator) -> None:
    counts = counts_of(comm.size)
    total = 5 * comm.size * (comm.size - 1) + comm.size * (1 + np.arange(sum(counts)))
    start = sum(counts[: comm.rank])
    for dtype in SUMMED:
        receive = np.zeros(counts[comm.rank], dtype)
        send = run_of(comm.rank, sum(counts), dtype)
        comm.Reduce_scatter(send, receive, counts)
        assert_array_equal(receive, total[start : start + counts[comm.rank]])
        assert_array_equal(send, run_of(comm.rank, sum(counts), dtype))


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


def check_objects(comm: Communicator) -> None:
    for root in range(comm.size):
        assert comm.bcast({"from": comm.rank}, root) == {"from": root}
    assert comm.allgather("abc"[: comm.rank]) == ["abc"[:rank] for rank in range(comm.size)]


def check_split(comm: Communicator) -> None:
    color = comm.rank % 2
    part = comm.Split(color, key=-comm.rank)  # in reverse order
    members = [rank for rank in reversed(range(comm.size)) if rank % 2 == color]
    assert (part.size, part.rank) == (len(members), members.index(comm.rank))
    assert part.allgather(comm.rank) == members
    part.Allreduce(total := np.array([float(comm.rank)]))
    assert total[0] == sum(members)


def check_split_into_singles(comm: Communicator) -> None:
    single = comm.Split(comm.rank)
    assert (single.rank, single.size) == (0, 1)
    single.Barrier()
    single.Allreduce(value := np.array([comm.rank]))
    assert value[0] == comm.rank


def check_dup_is_apart(comm: Communicator) -> None:
    """Messages of one communicator are not received by the other, though all else is equal."""
    twin = comm.Dup()
    assert (twin.rank, twin.size) == (comm.rank, comm.size)
    assert twin.counters is comm.counters
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if comm.size > 1:
        first, second = np.zeros(1), np.zeros(1)
        out = np.array([1.0]), np.array([2.0])
        requests = [twin.Irecv(second, left), comm.Irecv(first, left)]
        requests += [comm.Isend(out[0], right), twin.Isend(out[1], right)]
        for request in requests:
            request.Wait()
        assert (first[0], second[0]) == (1.0, 2.0)


def check_cartesian(comm: Communicator) -> None:
    for dims in {(comm.size, 1, 1), (1, comm.size, 1), (1, 1, comm.size)} | ({(2, 1, 2)} if comm.size == 4 else set()):
        cart = comm.Create_cart(dims)
        coords = list(np.ndindex(*dims))  # the last axis is the fastest
        assert cart.coords == coords[comm.rank]
        for remain in ((True, False, False), (False, False, True), (True, False, True), (True, True, True)):
            fixed = [axis for axis in range(3) if not remain[axis]]
            members = [
                rank for rank in range(comm.size) if all(coords[rank][axis] == cart.coords[axis] for axis in fixed)
            ]
            part = cart.Sub(remain)
            assert part.size == math.prod(dims[axis] for axis in range(3) if remain[axis])
            assert part.allgather(comm.rank) == members
            assert members[part.rank] == comm.rank
            assert part.counters is comm.counters


def check_grid(comm: Communicator) -> None:
    grid = ProcessGrid.make(comm, shards=2) if comm.size % 2 == 0 else ProcessGrid.make(comm)
    shards = 2 if comm.size % 2 == 0 else 1
    assert (grid.replicas, grid.stages, grid.shards) == (comm.size // shards, 1, shards)
    assert (grid.replica, grid.stage, grid.shard) == (comm.rank // shards, 0, comm.rank % shards)
    assert grid.across_shards.allgather(comm.rank) == [grid.replica * shards + s for s in range(shards)]
    assert grid.across_replicas.allgather(comm.rank) == list(range(grid.shard, comm.size, shards))
    assert grid.across_samples.allgather(comm.rank) == list(range(comm.size))
    assert grid.world is comm


def check_grid_of_stages(comm: Communicator) -> None:
    grid = ProcessGrid.make(comm, stages=comm.size)
    assert (grid.replica, grid.stage, grid.shard) == (0, comm.rank, 0)
    assert [grid.across_replicas.size, grid.across_shards.size, grid.across_samples.size] == [1, 1, 1]


def check_grid_refuses_what_does_not_divide(comm: Communicator) -> None:
    with pytest.raises(UsageError, match=rf"{comm.size} / 6 is not whole.*mpirun -n 6"):
        ProcessGrid.make(comm, stages=2, shards=3)


def check_bytes_counted(comm: Communicator) -> None:
    """Payload by the plain algorithms: see Traffic."""
    size, rank, others = comm.size, comm.rank, comm.size - 1
    counts = counts_of(size)
    whole, own = sum(counts), counts[rank]
    four = np.float32
    comm.counters.take()
    with comm.counters.during("F1"):
        comm.Barrier()
        comm.Bcast(np.zeros(6, four), root=0)
        comm.Bcast(np.zeros(6, four), root=0)
    with comm.counters.during("X0"):
        comm.Reduce(np.zeros(5, four), root=0)
        comm.Allreduce(np.zeros(12, np.float64))  # 12 · 8 bytes are divisible by 1 to 4 ranks
        comm.Gatherv(np.zeros(own, four), np.zeros(whole, four) if rank == 0 else None, counts, 0)
        comm.Scatterv(np.zeros(whole, four) if rank == 0 else None, np.zeros(own, four), counts, 0)
        comm.Allgatherv(np.zeros(own, four), np.zeros(whole, four), counts)
        comm.Reduce_scatter(np.zeros(whole, four), np.zeros(own, four), counts)
        # Each rank sends rank + 1 elements to each rank.
        to, back = [rank + 1] * size, [r + 1 for r in range(size)]
        comm.Alltoallv(np.zeros(sum(to), four), to, np.zeros(sum(back), four), back)
    traffic = comm.counters.take()
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
    assert comm.counters.total() == Traffic()


def check_bytes_counted_of_messages(comm: Communicator) -> None:
    """What made communicators send counts with the first one's; waiting counts with what started the transfer."""
    if comm.size == 1:
        return
    comm.counters.take()
    twin = comm.Dup()
    if comm.rank == 0:
        twin.Isend(np.zeros(3), 1).Wait()
        comm.Send(np.zeros(4), 1)
    elif comm.rank == 1:
        twin.Irecv(np.zeros(3), 0).Wait()
        comm.Recv(np.zeros(4), 0)
    traffic = {key: (entry.calls, entry.sent, entry.received) for key, entry in comm.counters.take().items()}
    sends = {("", "Isend"): (1, 24, 0), ("", "Send"): (1, 32, 0)}
    receives = {("", "Irecv"): (1, 0, 24), ("", "Recv"): (1, 0, 32)}
    assert traffic == (sends if comm.rank == 0 else receives if comm.rank == 1 else {})


def check_a_courier_beside_the_rank_itself(comm: Communicator) -> None:
    """Two threads of each rank, in collectives of two communicators at once."""
    courier = Courier(comm)
    twin = comm.Dup()
    mine, theirs = np.zeros(50), np.zeros(50)

    def add(index: int) -> None:
        twin.Allreduce(value := np.array([float(index + comm.rank)]))
        theirs[index] = value[0]

    for index in range(50):
        courier.submit(partial(add, index), f"X{index % 2}")
        comm.Allreduce(value := np.array([float(2 * index + comm.rank)]))
        mine[index] = value[0]
    courier.wait()
    ranks = comm.size * (comm.size - 1) / 2
    assert_array_equal(mine, 2 * np.arange(50) * comm.size + ranks)
    assert_array_equal(theirs, np.arange(50) * comm.size + ranks)
    courier.close()


def check_a_courier_counts_under_its_labels(comm: Communicator) -> None:
    courier = Courier(comm)
    twin = comm.Dup()
    comm.counters.take()
    with comm.counters.during("B0"):
        for label in ("X0", "X1", "X0"):
            courier.submit(lambda: twin.Allreduce(np.zeros(4)), label)
        comm.Barrier()
        courier.wait()
    calls = {key: entry.calls for key, entry in comm.counters.take().items()}
    assert calls == {("B0", "Barrier"): 1, ("X0", "Allreduce"): 2, ("X1", "Allreduce"): 1}
    courier.close()


def check_threads_may_call_at_once(comm: Communicator) -> None:
    """A thread that waits in a communicator does not keep others from another one."""
    if comm.size == 1 or not comm.concurrent:
        return
    twin = comm.Dup()
    late = threading.Thread(target=twin.Barrier)
    if comm.rank == 0:
        late.start()
        comm.Barrier()  # the others come to twin only after this one
        late.join()
    else:
        comm.Barrier()
        twin.Barrier()


CHECKS: Sequence[Check] = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
