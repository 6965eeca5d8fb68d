"""Communicator: the interface of every way to the other ranks. Methods have MPI's names and meaning.

Methods with a capital move numbers. Buffers are C-contiguous numpy arrays of one dtype (a CPU tensor's ``.numpy()``
shares its memory), and sums are element by element. Methods in lower case move Python objects by pickle; they are for
set-up, never for an iteration. As in MPI, all ranks of a communicator must call its collectives in the same order. Two
threads must not be in collectives of one communicator at once: use ``Dup``.

Subclasses implement the methods with a leading underscore. The public ones emit an Event each.

A failure of a library or a peer is a RunError. A wrong argument is a fault in bpt, and an AssertionError where it can
be detected.

Under fault tolerance (``mpirun --with-ft ulfm``) a rank's death ends only the operations that need that rank. Those
calls and requests raise a LostRankError on the ranks that are in them. All others continue, also on the same
communicator. A collective needs all ranks. So, from then on, the communicator serves messages between two ranks,
``Agree``, and ``Shrink``. A rank notices the death when it is in a call, or enters one. Starting a request raises
nothing, and a short message may be sent to a dead rank without an error.

A collective gives the right value or raises, but not the same on all ranks: some may have completed it when a rank
dies. A result is trusted only locally. Its use is harmless, because a healing run returns to one state on all ranks,
and no rank leaves before all have agreed (``Agree``) that they are done.
"""

from __future__ import annotations

import socket
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import LostRankError
from bpt.system.comm.window import Window
from bpt.system.events.bus import EventBus

Buffer = NDArray[Any]
Counts = Sequence[int]
MAX_TAG = 32766  # MPI promises one more, which a communicator may use for itself


class Request(Protocol):
    """A transfer that has been started.

    Either method raises a LostRankError when the other rank is dead, and then on each further call.
    """

    def Wait(self) -> None:
        """Return when the buffer may be used again (sent) or read (received)."""

    def Test(self) -> bool:
        """Return whether ``Wait`` would return at once."""


class CountedRequest:
    """A request whose wait is recorded under the method that started it; a ``Test`` that finds nothing is not."""

    def __init__(self, request: Request, comm: Communicator, method: str, peer: int, flow: int = 0) -> None:
        self._request = request
        self._comm = comm
        self._method = method
        self._peer = peer
        self._flow = flow  # the number of the message that arrives here, until it has arrived

    def Wait(self) -> None:
        with self._goes_on():
            self._request.Wait()

    def Test(self) -> bool:
        with self._comm._translated(self._method):
            done = self._request.Test()
        if done and self._flow:
            with self._goes_on():
                pass
        return done

    def _goes_on(self) -> AbstractContextManager[object]:
        flow, self._flow = self._flow, 0
        return self._comm._call(self._method, calls=0, peer=self._peer, flow=flow)


_FLOWS = 2**62 - 1
C = TypeVar("C", bound="Communicator")


class Communicator(ABC):
    """A group of ranks that can reach each other.

    Attributes:
        rank: the number of this process in the group, from 0.
        size: the number of ranks.
        has_lost_ranks: whether ranks of its origin were lost (``Shrink``).
        events: the event bus of this communicator and all those made from it or together with it.
        concurrent: whether several threads may be in calls at once (of different communicators).
        fault_hook: called with the communicator, the method and the peer, if there is one, as a call begins.
            Communicators made from this one afterwards call it, too. It serves fault injection.
    """

    concurrent = True

    def __init__(self, rank: int, size: int, events: EventBus | None = None) -> None:
        self.rank = rank
        self.size = size
        self.events = events or EventBus(rank)
        self._identity = 0  # equal on all ranks here, and unique among their communicators
        self._made = 0  # the number of communicators made from this one
        self._of_this: weakref.WeakSet[Communicator] = weakref.WeakSet()  # those of them that still exist
        self.has_lost_ranks = False
        self.fault_hook: Callable[[Communicator, str, int | None], object] | None = None
        self._made_of: Communicator | None = None  # this reference keeps the parent reachable
        self._messages: dict[tuple[int, int, int], int] = {}  # their number, by sender, receiver and tag

    @property
    def world_ranks(self) -> Sequence[int]:
        """The ranks of the job that are here, in order."""
        return range(self.size)

    @property
    def host(self) -> str:
        """The name of the machine on which this rank runs."""
        return socket.gethostname()

    @property
    def spans_hosts(self) -> bool:
        """Whether its ranks are on several hosts, as far as each knows without asking."""
        return False

    def describe(self) -> dict[str, str]:
        """Return the facts about the transport of messages, by name.

        These are "library", "standard", "threads" (the supported level), "fault tolerance", and the kinds of "device
        memory" whose buffers it accepts.
        """
        return {
            "library": "none",
            "standard": "none",
            "threads": "any",
            "fault tolerance": "off",
            "device memory": "none",
        }

    @property
    def by_torch(self) -> bool:
        """Whether the messages are torch.distributed's, and there is no MPI."""
        return False

    @property
    def tolerant(self) -> bool:
        """Whether there are other ranks, and they continue when a rank is lost."""
        return self.size > 1 and self.describe()["fault tolerance"] == "on"

    # A collective of the living ranks

    def Agree(self, flag: int) -> int:
        """Return the bits that are set in the ``flag`` of all ranks, equal on all.

        The death of a rank does not disturb this call.
        """
        with self._call("Agree"):
            return self._Agree(flag)

    # Collectives on buffers

    def Barrier(self) -> None:
        """Wait until all ranks are here."""
        with self._call("Barrier"):
            self._Barrier()

    def Bcast(self, buffer: Buffer, root: int = 0) -> None:
        """Overwrite ``buffer`` everywhere with that of ``root``."""
        n, at_root = buffer.nbytes, self.rank == root
        with self._call("Bcast", n * (self.size - 1) * at_root, n * (not at_root), dtype=buffer.dtype):
            self._Bcast(buffer, root)

    def Reduce(self, buffer: Buffer, root: int = 0) -> None:
        """Leave the sum over all ranks in ``root``'s ``buffer``; the buffers of the others do not change."""
        n, at_root = buffer.nbytes, self.rank == root
        with self._call("Reduce", n * (not at_root), n * (self.size - 1) * at_root, dtype=buffer.dtype):
            self._Reduce(buffer, root)

    def Allreduce(self, buffer: Buffer) -> None:
        """Leave the sum over all ranks in ``buffer``, equal on all to the last bit."""
        with self.summing(buffer.nbytes, buffer.dtype):
            self._Allreduce(buffer)

    def summing(self, nbytes: int, dtype: np.dtype[Any]) -> AbstractContextManager[object]:
        """Record the code inside, which sums a buffer of all ranks by any library, as an Allreduce."""
        n = 2 * nbytes * (self.size - 1) // self.size
        return self._call("Allreduce", n, n, dtype=dtype)

    def Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int = 0) -> None:
        """Put the ``send`` of all ranks one after the other into ``root``'s ``receive``.

        Args:
            send: the buffer of this rank.
            receive: flat, with room for ``sum(counts)`` elements; only ``root`` uses it.
            counts: the number of elements of each rank's ``send``; the same on all ranks.
            root: the rank that receives.
        """
        at_root = self.rank == root
        item = send.itemsize
        with self._call(
            "Gatherv",
            0 if at_root else send.nbytes,
            (sum(counts) - counts[root]) * item if at_root else 0,
            dtype=send.dtype,
        ):
            self._Gatherv(send, receive, counts, root)

    def Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int = 0) -> None:
        """Cut ``root``'s ``send`` into runs of ``counts`` elements, one for each rank's ``receive``."""
        at_root = self.rank == root
        item = receive.itemsize
        with self._call(
            "Scatterv",
            (sum(counts) - counts[root]) * item if at_root else 0,
            0 if at_root else receive.nbytes,
            dtype=receive.dtype,
        ):
            self._Scatterv(send, receive, counts, root)

    def Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        """Put the ``send`` of all ranks one after the other into every rank's flat ``receive``."""
        others = sum(counts) - counts[self.rank]
        with self._call("Allgatherv", send.nbytes * (self.size - 1), others * send.itemsize, dtype=send.dtype):
            self._Allgatherv(send, receive, counts)

    def Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None:
        """Send run r of the flat ``send`` to rank r; run r of the flat ``receive`` comes from rank r."""
        item = send.itemsize
        sent = (sum(send_counts) - send_counts[self.rank]) * item
        received = (sum(receive_counts) - receive_counts[self.rank]) * item
        with self._call("Alltoallv", sent, received, dtype=send.dtype):
            self._Alltoallv(send, send_counts, receive, receive_counts)

    def Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None:
        """Sum the flat ``send`` over all ranks; each gets its run of ``counts`` elements in ``receive``."""
        item = send.itemsize
        own = counts[self.rank]
        with self._call("Reduce_scatter", (sum(counts) - own) * item, own * (self.size - 1) * item, dtype=send.dtype):
            self._Reduce_scatter(send, receive, counts)

    # Point-to-point messages. Those of one sender and tag arrive in the order in which they were sent. A tag is at most
    # MAX_TAG. ``Send`` may wait until the other rank receives, like MPI's.

    def Send(self, buffer: Buffer, dest: int, tag: int = 0) -> None:
        """Send ``buffer``; it may be used again afterwards."""
        flow = self._flow(self.rank, dest, tag)
        with self._call("Send", buffer.nbytes, 0, peer=dest, dtype=buffer.dtype, flow=flow):
            self._Isend(buffer, dest, tag).Wait()

    def Recv(self, buffer: Buffer, source: int, tag: int = 0) -> None:
        """Receive into ``buffer``, which has exactly the right size."""
        flow = self._flow(source, self.rank, tag)
        with self._call("Recv", 0, buffer.nbytes, peer=source, dtype=buffer.dtype, flow=-flow):
            self._Irecv(buffer, source, tag).Wait()

    def Isend(self, buffer: Buffer, dest: int, tag: int = 0) -> Request:
        """Start to send ``buffer``, which must not change until ``Wait``."""
        flow = self._flow(self.rank, dest, tag)
        with self._call("Isend", buffer.nbytes, 0, peer=dest, dtype=buffer.dtype, flow=flow):
            return CountedRequest(self._Isend(buffer, dest, tag), self, "Isend", dest)

    def Irecv(self, buffer: Buffer, source: int, tag: int = 0) -> Request:
        """Start to receive into ``buffer``."""
        flow = self._flow(source, self.rank, tag)
        with self._call("Irecv", 0, buffer.nbytes, peer=source, dtype=buffer.dtype):
            return CountedRequest(self._Irecv(buffer, source, tag), self, "Irecv", source, -flow)

    # Objects, for set-up

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return the ``value`` of ``root``, on all ranks."""
        with self._object_call("bcast"):
            return self._bcast_object(value, root)

    def allgather(self, value: Any) -> list[Any]:
        """Return the ``value`` of every rank, in order of rank."""
        with self._object_call("allgather"):
            return self._allgather_objects(value)

    # New communicators, which share the events

    @abstractmethod
    def Split(self, color: int, key: int = 0) -> Communicator:
        """Return a communicator for each ``color``, its ranks in order of ``key``, then of their old rank."""

    @abstractmethod
    def Dup(self) -> Communicator:
        """Return another communicator of the same ranks, for another thread or purpose."""

    @abstractmethod
    def Free(self) -> None:
        """Free this communicator, when no operation in it is active; a collective call, the last one here.

        The end of the process frees the others. A run that fails does not call this.
        """

    def finalize(self) -> None:  # noqa: B027  MPI waits at the end of the process
        """Return when no rank needs this one any more, at the end of a successful job; a collective call."""

    def Shrink(self) -> Communicator:
        """Return a communicator of the living ranks, in order of their rank; a collective of those.

        Ranks may call it from anywhere. Waits in this communicator end with a LostRankError. So do all later calls
        here, except ``Agree`` and ``Shrink``. Without fault tolerance it is a ``Dup``.
        """
        shrunk = self._Shrink()
        shrunk.has_lost_ranks |= shrunk.size < self.size
        return shrunk

    def loss(self) -> LostRankError | None:
        """Return why waiting here is useless, if it is: ranks are lost, or the communicator was revoked."""
        return None

    def forget(self, made: Communicator) -> None:
        """Exclude ``made``, which was made from this one, from a later ``Revoke``."""
        self._of_this.discard(made)

    def Revoke(self) -> None:
        """End all waits in this communicator or those made from it with a LostRankError, on all ranks.

        It is not a collective: a rank that cannot continue informs the others. Afterwards only ``Agree`` and ``Shrink``
        can be called here. Without fault tolerance it does nothing.
        """
        for made in list(self._of_this):
            made.Revoke()
        self._Revoke()

    # Memory that ranks share

    @abstractmethod
    def Split_type_shared(self) -> Communicator:
        """Return the ranks that can share memory with this one, those of its host, in order of their rank.

        This is a collective call.
        """

    @abstractmethod
    def Allocate_shared(self, nbytes: int) -> Window:
        """Return memory that all ranks here see; a collective call.

        Args:
            nbytes: the size of this rank's part; each rank has its own number, which may be 0.

        Raises:
            RunError: the memory cannot be allocated; on all ranks.
            AssertionError: not all ranks can share memory (``Split_type_shared``).
        """

    @abstractmethod
    def Abort(self, status: int = 1) -> None:
        """End all ranks of the job now. Under fault tolerance only this rank ends; the others see it as lost."""

    @abstractmethod
    def _bcast_object(self, value: Any, root: int) -> Any: ...
    @abstractmethod
    def _allgather_objects(self, value: Any) -> list[Any]: ...
    @abstractmethod
    def _Agree(self, flag: int) -> int: ...
    @abstractmethod
    def _Shrink(self) -> Communicator: ...
    @abstractmethod
    def _Revoke(self) -> None: ...
    @abstractmethod
    def _Barrier(self) -> None: ...
    @abstractmethod
    def _Bcast(self, buffer: Buffer, root: int) -> None: ...
    @abstractmethod
    def _Reduce(self, buffer: Buffer, root: int) -> None: ...
    @abstractmethod
    def _Allreduce(self, buffer: Buffer) -> None: ...
    @abstractmethod
    def _Gatherv(self, send: Buffer, receive: Buffer | None, counts: Counts, root: int) -> None: ...
    @abstractmethod
    def _Scatterv(self, send: Buffer | None, receive: Buffer, counts: Counts, root: int) -> None: ...
    @abstractmethod
    def _Allgatherv(self, send: Buffer, receive: Buffer, counts: Counts) -> None: ...
    @abstractmethod
    def _Alltoallv(self, send: Buffer, send_counts: Counts, receive: Buffer, receive_counts: Counts) -> None: ...
    @abstractmethod
    def _Reduce_scatter(self, send: Buffer, receive: Buffer, counts: Counts) -> None: ...
    @abstractmethod
    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request: ...
    @abstractmethod
    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request: ...

    def _call(
        self,
        method: str,
        sent: int = 0,
        received: int = 0,
        calls: int = 1,
        peer: int | None = None,
        dtype: np.dtype[Any] | None = None,
        flow: int = 0,
    ) -> AbstractContextManager[object]:
        """Record the code inside as an Event, in ``_translated``."""
        of_job = None if peer is None else self.world_ranks[peer]
        noted = self.events.call(method, sent, received, calls, of_job, dtype, flow)
        return noted if self.fault_hook is None else self._gated(noted, method, peer)

    def _object_call(self, method: str) -> AbstractContextManager[object]:
        """Report a collective of objects to the flight recorder, in ``_translated``. It is no event."""
        noted = self.events.waiting(method)
        return noted if self.fault_hook is None else self._gated(noted, method, None)

    @contextmanager
    def _gated(self, noted: AbstractContextManager[object], method: str, peer: int | None) -> Iterator[None]:
        with noted:
            if self.fault_hook is not None:
                self.fault_hook(self, method, peer)
            yield

    def _flow(self, source: int, dest: int, tag: int) -> int:
        """Return a number for the next message of this kind, equal at both ends since messages arrive in order.

        Hashes of integers are equal in all processes.
        """
        message = self.world_ranks[source], self.world_ranks[dest], tag
        number = self._messages[message] = self._messages.get(message, 0) + 1
        return hash((self._identity, *message, number)) & _FLOWS or 1

    def _adopt(self, made: C) -> C:
        """Give ``made``, which all ranks here have made now, an identity of its own."""
        self._made += 1
        self._of_this.add(made)
        made._made_of = self
        made.has_lost_ranks = self.has_lost_ranks
        made.fault_hook = self.fault_hook
        made._identity = hash((self._identity, self._made))
        return made

    def _translated(self, method: str) -> AbstractContextManager[object]:
        """Translate errors of the library inside to those that ``method`` raises."""
        return nullcontext()
