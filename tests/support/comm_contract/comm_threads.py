"""Several threads of a rank."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
from numpy.testing import assert_array_equal

from bpt.engine.instructions import Backward, ExchangeGradients
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from tests.support.doubles.seen import Seen


def check_a_courier_beside_the_rank_itself(comm: Communicator) -> None:
    """Two threads of each rank, in collectives of two communicators at once."""
    comm_thread = CommThread(comm)
    twin = comm.Dup()
    mine, theirs = np.zeros(50), np.zeros(50)

    def add(index: int) -> None:
        twin.Allreduce(value := np.array([float(index + comm.rank)]))
        theirs[index] = value[0]

    for index in range(50):
        comm_thread.submit(partial(add, index), ExchangeGradients(index % 2))
        comm.Allreduce(value := np.array([float(2 * index + comm.rank)]))
        mine[index] = value[0]
    comm_thread.wait()
    ranks = comm.size * (comm.size - 1) / 2
    assert_array_equal(mine, 2 * np.arange(50) * comm.size + ranks)
    assert_array_equal(theirs, np.arange(50) * comm.size + ranks)
    comm_thread.close()


def check_work_counts_under_its_own_instruction(comm: Communicator) -> None:
    comm_thread = CommThread(comm)
    twin = comm.Dup()
    seen = Seen(comm)
    with comm.events.during(Backward(0)):
        for segment in (0, 1, 0):
            comm_thread.submit(lambda: twin.Allreduce(np.zeros(4)), ExchangeGradients(segment))
        comm.Barrier()
        comm_thread.wait()
    calls = {key: entry.calls for key, entry in seen.calls().items()}
    assert calls == {("B0", "Barrier"): 1, ("X0", "Allreduce"): 2, ("X1", "Allreduce"): 1}
    comm_thread.close()


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
