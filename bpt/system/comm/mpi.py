"""MpiCommunicator: ranks are processes that a launcher (mpirun, srun) has started, maybe on many machines.

Only this file imports mpi4py, and only ``bpt.system.comm.launch`` imports this file, since the import starts MPI.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from bpt.base.errors import LostRankError, RunError
from bpt.system.comm import processes as room
from bpt.system.comm.base import Buffer, Counts, Request
from bpt.system.comm.connectivity import check_connectivity, lost_rank_error, name_of
from bpt.system.comm.cores import LONGEST_SLEEP
from bpt.system.comm.device_memory import device_memory
from bpt.system.comm.message_collectives import MessageCommunicator
from bpt.system.comm.objects import DamagedObjectError
from bpt.system.comm.pieces import (
    Transfers,
    drop_finished,
    flat,
    is_long,
    is_worth_messages,
    pieces,
    runs,
)
from bpt.system.comm.processes import Win
from bpt.system.comm.window import SLACK, Memory
from bpt.system.events.bus import EventBus
from bpt.system.events.flight_recorder import FlightRecorder

_FT = "OMPI_MCA_mpi_ft_enable"  # what mpirun --with-ft sets
# Bytes of a sum. For one of 32 MiB or more, Open MPI gets new memory from the system each time, which clears it; and
# a piece of 8 MiB stays in the cache.
SUM_PIECE = 2**23
SECONDS_TO_KNOW = 1.0  # the longest time from the error of a rank's death until the library knows the rank

_hosts: list[str] = []  # the hosts of all ranks, since a lost rank cannot answer


class MpiCommunicator(MessageCommunicator):
    """One rank of an MPI communicator.

    Sums are equal bit by bit on all ranks, as MPI recommends to its implementers and all of them do. Their order is the
    library's, or that of MessageCommunicator's ring or tree.

    MPI's Alltoallv is not used: only the two ranks of a message know whether it is too long for it.

    Libraries spin while they wait, which is fastest if nobody else could use the core. A ``patient`` communicator
    sleeps in between. Where CPU time is scarce (more ranks than cores, a container's quota), spinning takes it from the
    computing thread or rank. But libraries progress a collective only while somebody waits in it, and cut long buffers
    into many small messages, each of which would then wait for the end of a sleep. So a patient communicator makes long
    sums, reductions, broadcasts and all-to-all exchanges from few long messages, which travel meanwhile.

    Args:
        mpi: the communicator; from now on it returns its errors instead of aborting.
        longest_sleep: seconds that a wait sleeps at most, the same on all ranks; 0.0: it is not patient. Communicators
            made from this one inherit it.
    """

    def __init__(self, mpi: MPI.Intracomm, events: EventBus | None = None, longest_sleep: float = 0.0) -> None:
        super().__init__(mpi.Get_rank(), mpi.Get_size(), events)
        self.concurrent = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.longest_sleep = longest_sleep
        self._mpi = mpi
        mpi.Set_errhandler(MPI.ERRORS_RETURN)

    @property
    def patient(self) -> bool:
        """Whether waits sleep."""
        return self.longest_sleep > 0

    @cached_property
    def world_ranks(self) -> Sequence[int]:
        return tuple(self._mpi.Get_group().Translate_ranks(None, MPI.COMM_WORLD.Get_group()))

    @cached_property
    def spans_hosts(self) -> bool:
        return len({_hosts[rank] for rank in self.world_ranks}) > 1

    def Split(self, color: int, key: int = 0) -> MpiCommunicator:
        # The library finds the members by an allgather of its own, which a death may leave with nonsense.
        colors = self.allgather(color) if _is_tolerant() else []
        with self._translated("Split"):
            made = self._of_same_kind(cast(MPI.Intracomm, self._mpi.Split(color, key)))
        if colors and made.size != colors.count(color):
            raise self._loss("Split", self._failed())
        return made

    def Dup(self) -> MpiCommunicator:
        with self._translated("Dup"):
            return self._of_same_kind(self._mpi.Dup())

    def Free(self) -> None:
        with self._translated("Free"):
            self._mpi.Free()

    def _Shrink(self) -> MpiCommunicator:
        if not _is_tolerant():
            return self.Dup()
        with self.events.waiting("Shrink"), self._translated("Shrink"):
            self._mpi.Revoke()
            shrunk = cast(MPI.Intracomm, self._mpi.Shrink())
            drop_finished()
            return self._of_same_kind(shrunk)

    def _Revoke(self) -> None:
        if _is_tolerant() and self._mpi != MPI.COMM_NULL:
            self._mpi.Revoke()

    def Split_type_shared(self) -> MpiCommunicator:
        with self._translated("Split_type"):
            return self._of_same_kind(cast(MPI.Intracomm, self._mpi.Split_type(MPI.COMM_TYPE_SHARED)))

    def _loss_in_window(self, gone: Sequence[int]) -> LostRankError | None:
        return self._loss("wait", gone) if gone else self.loss()

    def loss(self) -> LostRankError | None:
        if _is_tolerant():
            try:
                self._mpi.Iprobe()
            except MPI.Exception as error:
                return self._loss("wait", self._failed()) if _is_loss(error) else None
        return None

    def _shared_memory(self, sizes: Sequence[int], place: Path | None) -> tuple[Sequence[Memory], Win]:
        # Room was checked: where Open MPI has no room, some ranks would hang.
        with self._translated("Allocate_shared"):
            win = self._allocate(sizes, place)
        return [np.frombuffer(win.Shared_query(rank)[0].cast("B"), np.uint8) for rank in range(self.size)], win

    def _allocate(self, sizes: Sequence[int], place: Path | None) -> MPI.Win:
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})  # each part in pages, and memory, near its rank
        try:
            win = MPI.Win.Allocate_shared(sizes[self.rank] + SLACK, 1, info, self._mpi)
        except MPI.Exception as error:
            if _is_loss(error) or self._failed():
                raise
            reason = f"cannot be used ({error.Get_error_string()})"
            raise RunError(room.refusal(sum(sizes), self.host, place, reason)) from error
        win.Lock_all(MPI.MODE_NOCHECK)  # Sync needs an epoch
        return win

    def Abort(self, status: int = 1) -> None:
        if _is_tolerant():  # MPI's abort would end this rank without informing the others; so does an exit status
            os.kill(os.getpid(), signal.SIGKILL)
        MPI.COMM_WORLD.Abort(status)

    def describe(self) -> dict[str, str]:
        major, minor = MPI.Get_version()
        levels = {
            MPI.THREAD_SINGLE: "SINGLE",
            MPI.THREAD_FUNNELED: "FUNNELED",
            MPI.THREAD_SERIALIZED: "SERIALIZED",
            MPI.THREAD_MULTIPLE: "MULTIPLE",
        }
        return {
            "library": MPI.Get_library_version().split(", package")[0].splitlines()[0].strip(" \0"),
            "standard": f"MPI {major}.{minor}",
            "threads": f"MPI_THREAD_{levels[MPI.Query_thread()]}",
            "fault tolerance": "on" if _is_tolerant() else "off",
            "device memory": device_memory(MPI.__file__, self._mpi.Get_info().Get("mpi_memory_alloc_kinds")),
        }

    def _bcast_object(self, value: Any, root: int) -> Any:
        if _is_tolerant():
            return super()._bcast_object(value, root)
        content = _pickled(value if self.rank == root else None)
        self._do("Bcast", _spec(length := np.array([content.size])), root)
        if self.rank != root:
            content = np.empty(length, np.uint8)
        self._do("Bcast", _spec(content), root)
        return value if self.rank == root else pickle.loads(content.data)

    def _allgather_objects(self, value: Any) -> list[Any]:
        if _is_tolerant():
            return super()._allgather_objects(value)
        content, lengths = _pickled(value), np.empty(self.size, int)
        self._do("Allgather", _spec(np.array([content.size])), _spec(lengths))
        everybody = np.empty(lengths.sum(), np.uint8)
        self._do("Allgatherv", _spec(content), _spec(everybody, list(lengths)))
        return [pickle.loads(part.data) for part in runs(everybody, list(lengths))]

    def _Agree(self, flag: int) -> int:
        if not _is_tolerant():
            self._do("Allreduce", MPI.IN_PLACE, _spec(value := np.array([flag], np.intc)), MPI.BAND)
            return int(value[0])
        while True:
            value = np.array([flag], np.intc)
            self._mpi.Ack_failed()
            try:
                Transfers(
                    [self._mpi.Iagree(value)], self.longest_sleep or LONGEST_SLEEP
                ).Wait()  # some ranks wait here for hours
                return int(value[0])
            except MPI.Exception as error:  # all ranks see the same error: one has died, and not all knew it
                if error.Get_error_class() != MPI.ERR_PROC_FAILED:
                    raise

    def _Barrier(self) -> None:
        self._do("Barrier")

    def _Bcast(self, buffer: Buffer, root: int) -> None:
        if self._by_messages(buffer):
            super()._Bcast(buffer, root)
            return
        for piece in pieces(buffer):
            self._do("Bcast", _spec(piece), root)

    def _Reduce(self, buffer: Buffer, root: int) -> None:
        if self._by_messages(buffer):
            super()._Reduce(buffer, root)
            return
        for piece in pieces(buffer, SUM_PIECE):
            if self.rank == root:
                self._do("Reduce", MPI.IN_PLACE, _number_spec(piece), MPI.SUM, root)
            else:
                self._do("Reduce", _number_spec(piece), None, MPI.SUM, root)

    def _Allreduce(self, buffer: Buffer) -> None:
        if self._by_messages(buffer):
            super()._Allreduce(buffer)
            return
        for piece in pieces(buffer, SUM_PIECE):
            self._do("Allreduce", MPI.IN_PLACE, _number_spec(piece), MPI.SUM)

    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None:
        if is_long(counts, send.dtype):
            super()._Gatherv(send, receive, counts, root)
        else:
            self._do("Gatherv", _spec(send), _spec(receive, counts) if self.rank == root else None, root)

    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None:
        if is_long(counts, receive.dtype):
            super()._Scatterv(send, receive, counts, root)
        else:
            self._do("Scatterv", _spec(send, counts) if self.rank == root else None, _spec(receive), root)

    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        # Each rank sends to all others at once, with one wait; each step of a library would sleep. Open MPI's may
        # return without an error, and without the numbers, when a rank dies in it.
        if self.patient or _is_tolerant():
            super()._Allgatherv(send, receive, counts)
        elif is_long(counts, send.dtype):
            parts = runs(receive, counts)
            parts[self.rank][...] = flat(send)
            for root, run in enumerate(parts):
                self._Bcast(run, root)
        else:
            self._do("Allgatherv", _spec(send), _spec(receive, counts))

    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        if self.patient:
            super()._Reduce_scatter(send, receive, counts)
        elif is_long(counts, send.dtype):
            for root, run in enumerate(runs(send, counts)):
                targets = pieces(receive) if self.rank == root else iter(())
                for piece in pieces(run):
                    target = _number_spec(next(targets)) if self.rank == root else None
                    self._do("Reduce", _number_spec(piece), target, MPI.SUM, root)
        else:
            self._do("Reduce_scatter", _number_spec(send), _number_spec(receive), list(counts), MPI.SUM)

    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request:
        return Transfers([self._mpi.Isend(_spec(piece), dest, tag) for piece in pieces(buffer)], self.longest_sleep)

    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request:
        return Transfers([self._mpi.Irecv(_spec(piece), source, tag) for piece in pieces(buffer)], self.longest_sleep)

    def _of_same_kind(self, mpi: MPI.Intracomm) -> MpiCommunicator:
        return self._adopt(MpiCommunicator(mpi, self.events, self.longest_sleep))

    def _do(self, method: str, *arguments: Any) -> None:
        """Call MPI's collective, in its nonblocking form if this communicator is patient."""
        if self.patient:
            Transfers([getattr(self._mpi, f"I{method.lower()}")(*arguments)], self.longest_sleep).Wait()
        else:
            getattr(self._mpi, method)(*arguments)

    def _by_messages(self, buffer: Buffer) -> bool:
        return self.patient and self.size > 1 and is_worth_messages(buffer)

    @contextmanager
    def _call(self, method: str, *seen: Any, **more: Any) -> Iterator[None]:
        with super()._call(method, *seen, **more), self._translated(method):
            yield

    @contextmanager
    def _object_call(self, method: str) -> Iterator[None]:
        """Revoke the communicator if this rank fails inside, so that all ranks learn of a loss."""
        with super()._object_call(method):
            try:
                with self._translated(method):
                    yield
            except LostRankError:
                self._Revoke()
                raise

    @contextmanager
    def _translated(self, method: str) -> Iterator[None]:
        """Translate MPI's errors to RunErrors that say what happened and what to do."""
        try:
            yield
        except MPI.Exception as error:
            raise self._explained(method, error) from error
        except DamagedObjectError as error:
            if self._lost_in(SECONDS_TO_KNOW):
                raise self._loss(method, self._failed()) from error
            raise RunError(
                f"{method} of {self.size} ranks got a damaged message; bpt doctor tests the connections between the "
                "ranks"
            ) from error

    def _lost_in(self, seconds: float) -> bool:
        """Return whether ranks here are known to have failed, after some seconds at the latest."""
        end = time.monotonic() + seconds
        while _is_tolerant():
            if self._failed():
                return True
            if time.monotonic() > end:
                break
            self.loss()  # lets the library check
            time.sleep(0.005)
        return False

    def _explained(self, method: str, error: MPI.Exception) -> RunError:
        # When a rank dies, Open MPI's collectives may raise other errors, before the lost rank is known.
        if _is_loss(error) or self._lost_in(SECONDS_TO_KNOW):
            return self._loss(method, self._failed())
        return RunError(
            f"{method} of {self.size} ranks failed: {error.Get_error_string()}. If a rank or the network has failed, "
            "start again; bpt doctor tests the connections between the ranks"
        )

    def _failed(self) -> list[int]:
        """Return the ranks here that are known to have failed; none if the library cannot say."""
        try:
            return self._mpi.Get_failed().Translate_ranks(None, self._mpi.Get_group())
        except (MPI.Exception, NotImplementedError):
            return []

    def _loss(self, method: str, ranks: Sequence[int]) -> LostRankError:
        in_world = self._mpi.Get_group().Translate_ranks(ranks, MPI.COMM_WORLD.Get_group())
        return lost_rank_error(method, ranks, [name_of(rank, _hosts[rank]) for rank in in_world])


def world() -> MpiCommunicator:
    """Return all ranks that the launcher has started; a collective call.

    Raises:
        RunError: the ranks do not reach each other.
    """
    size, rank = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
    comm = MpiCommunicator(MPI.COMM_WORLD, EventBus(rank, FlightRecorder() if size > 1 else None))
    _hosts[:] = check_connectivity(comm)
    return comm


def _is_tolerant() -> bool:
    return os.environ.get(_FT) in {"1", "true"}


def _is_loss(error: MPI.Exception) -> bool:
    return error.Get_error_class() in {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}


def _spec(buffer: Buffer | None, counts: Counts | None = None) -> Any:
    """Return a buffer as mpi4py needs it: memory and MPI's type of an element."""
    assert buffer is not None
    return [flat(buffer), counts, _type(buffer.dtype)] if counts is not None else [flat(buffer), _type(buffer.dtype)]


def _pickled(value: Any) -> Buffer:
    return np.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), np.uint8)


def _number_spec(buffer: Buffer) -> Any:
    assert _type(buffer.dtype).is_predefined, f"MPI cannot sum {buffer.dtype}"
    return _spec(buffer)


@lru_cache
def _type(dtype: np.dtype[Any]) -> MPI.Datatype:
    """Return MPI's type of an element.

    For types that MPI does not have (half precision) it is a run of bytes, which can be moved, but not summed.
    """
    try:
        return MPI.Datatype.fromcode(dtype.char)
    except ValueError:
        return MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
