"""SerialCommunicator: a single rank. Nothing is sent, and mpi4py is not needed."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from bpt.system.comm.base import Buffer, Communicator, Counts, Request
from bpt.system.comm.window import SLACK, Window, aligned
from bpt.system.events.bus import EventBus


class SerialCommunicator(Communicator):
    """The only rank of its group: sums do not change buffers, and everything arrives at once."""

    def __init__(self, events: EventBus | None = None) -> None:
        super().__init__(0, 1, events)

    def _bcast_object(self, value: Any, root: int) -> Any:
        return value

    def _allgather_objects(self, value: Any) -> list[Any]:
        return [value]

    def Split(self, color: int, key: int = 0) -> SerialCommunicator:
        return SerialCommunicator(self.events)

    def Dup(self) -> SerialCommunicator:
        return SerialCommunicator(self.events)

    def Free(self) -> None:
        pass

    def Split_type_shared(self) -> SerialCommunicator:
        return SerialCommunicator(self.events)

    def _Shrink(self) -> SerialCommunicator:
        return SerialCommunicator(self.events)

    def Allocate_shared(self, nbytes: int) -> Window:
        return _SerialWindow([aligned(np.zeros(nbytes + SLACK, np.uint8), nbytes)], self._call)

    def Abort(self, status: int = 1) -> NoReturn:
        sys.exit(status)

    def _Agree(self, flag: int) -> int:
        return flag

    def _Revoke(self) -> None:
        pass

    def _Barrier(self) -> None:
        pass

    def _Bcast(self, buffer: Buffer, root: int) -> None:
        pass

    def _Reduce(self, buffer: Buffer, root: int) -> None:
        pass

    def _Allreduce(self, buffer: Buffer) -> None:
        pass

    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None:
        assert receive is not None
        receive[...] = send.reshape(-1)

    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None:
        assert send is not None
        receive.reshape(-1)[...] = send.reshape(-1)

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        receive[...] = send.reshape(-1)

    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        receive[...] = send

    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        receive.reshape(-1)[...] = send.reshape(-1)

    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request:
        raise AssertionError("a rank that is alone has nobody to send to")

    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request:
        raise AssertionError("a rank that is alone has nobody to receive from")


class AbsentRanks(SerialCommunicator):
    """Rank 0 of ``size`` ranks, of which the others do not exist: their messages are zeros and arrive at once."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        receive[...] = 0

    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        receive[...] = 0


class _SerialWindow(Window):
    """Memory of one rank, whose threads may wait for each other. Python's lock keeps loads and stores in order."""

    def Sync(self) -> None:
        pass

    def Free(self) -> None:
        self._parts = ()
