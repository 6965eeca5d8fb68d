"""GlooCommunicator: ranks are processes that torchrun has started; PyTorch's library gloo moves their messages.

Of the communicators only this file imports torch. As the others do, it moves numpy buffers.
"""

from __future__ import annotations

import mmap
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroup, ProcessGroupGloo, Store, Work
from torch.distributed.rendezvous import rendezvous

from bpt.base.errors import BptError, LostRankError, RunError, first_line_of
from bpt.system.comm import processes as room
from bpt.system.comm.base import Buffer, Request
from bpt.system.comm.connectivity import lost_rank_error, name_of
from bpt.system.comm.message_collectives import SHORT, MessageCommunicator
from bpt.system.comm.objects import DamagedObjectError
from bpt.system.comm.pieces import flat
from bpt.system.comm.processes import Win
from bpt.system.comm.window import SLACK, Memory
from bpt.system.events.bus import EventBus
from bpt.system.events.flight_recorder import FlightRecorder

# Ranks may wait for each other as long as a test or a snapshot takes. torchrun ends them when one is lost.
FOREVER = timedelta(days=20)
_LAZY = "TORCH_GLOO_LAZY_INIT"
_TO_MEET = timedelta(seconds=120)
_SUMMED = {np.dtype(each) for each in ["f4", "f8", "f2", "i4", "i8", "i1", "u1"]}  # those that gloo sums
_LOST = re.compile("closed|reset|refused|broken pipe|aborted|timed? ?out|not connected|unreachable", re.IGNORECASE)

_hosts: list[str] = []  # the hosts of all ranks
_trial: list[ProcessGroup] = []  # kept, since its end could look like a lost rank to one that is late


class GlooCommunicator(MessageCommunicator):
    """One rank of a group whose messages and sums are gloo's. Waits sleep.

    Args:
        store: where members of a group find each other.
        name: of this group, equal on its ranks, and unique in the job.
        members: the ranks of the job that are in the group, in order.
        rank: the number of this process in the group.
    """

    def __init__(
        self, store: Store, name: str, members: Sequence[int], rank: int, events: EventBus | None = None
    ) -> None:
        super().__init__(rank, len(members), events)
        self._store = store
        self._name = name
        self._members = tuple(members)
        self._children = 0
        self._group = make_gloo_group(store, name, rank, len(members)) if len(members) > 1 else None

    @property
    def world_ranks(self) -> Sequence[int]:
        return self._members

    @property
    def spans_hosts(self) -> bool:
        return len({_hosts[rank] for rank in self._members}) > 1

    @property
    def by_torch(self) -> bool:
        return True

    def describe(self) -> dict[str, str]:
        return {
            "library": f"torch.distributed (gloo) of PyTorch {torch.__version__}",
            "standard": "none",
            "threads": "any",
            "fault tolerance": "off",
            "device memory": "none",
        }

    def Split(self, color: int, key: int = 0) -> GlooCommunicator:
        everybody = self.allgather((color, key))
        ranks = [rank for rank, (theirs, _) in enumerate(everybody) if theirs == color]
        return self._made_group(sorted(ranks, key=lambda rank: (everybody[rank][1], rank)))

    def Dup(self) -> GlooCommunicator:
        return self._made_group(range(self.size))

    def _Shrink(self) -> GlooCommunicator:
        return self.Dup()

    def _Revoke(self) -> None:
        pass

    def Free(self) -> None:
        self._group = None

    def finalize(self) -> None:
        with self._translated("finalize"):
            keys = [f"{self._name}/ended/{rank}" for rank in range(self.size)]
            self._store.set(keys[self.rank], "")
            self._store.wait(keys, FOREVER)

    def Split_type_shared(self) -> GlooCommunicator:
        hosts = self.allgather(self.host)
        return self.Split(hosts.index(self.host))

    def _shared_memory(self, sizes: Sequence[int], place: Path | None) -> tuple[Sequence[Memory], Win]:
        wholes = [size + SLACK for size in sizes]
        whole = np.frombuffer(self._shared_file(sum(wholes), place), np.uint8)
        return np.split(whole, np.cumsum(wholes)[:-1]), _Fence()

    def _shared_file(self, nbytes: int, place: Path | None) -> mmap.mmap:
        """Return a new file in memory, of all ranks; nobody else sees it, and it ends with the last of them."""
        number, path = -1, ""
        if self.rank == 0:
            number, path = tempfile.mkstemp(prefix="bpt-window-", dir=place)
            os.truncate(number, nbytes)
        path = self.bcast(path)
        reason, memory = "", None
        try:
            number = os.open(path, os.O_RDWR) if self.rank else number
            memory = mmap.mmap(number, nbytes)
        except OSError as error:  # hosts of one name, such as containers, may have folders of their own
            reason = str(error)
        finally:
            if number >= 0:
                os.close(number)
            reasons = [each for each in self.allgather(reason) if each]
            if self.rank == 0:
                os.unlink(path)
        if memory is None or reasons:
            raise RunError(room.refusal(nbytes, self.host, place, f"cannot be used ({reasons[0]})"))
        return memory

    def _loss_in_window(self, gone: Sequence[int]) -> LostRankError | None:
        return self._loss("wait", gone) if gone else None

    def _loss(self, method: str, ranks: Sequence[int]) -> LostRankError:
        of_job = [self._members[rank] for rank in ranks]
        return lost_rank_error(method, ranks, [name_of(rank, _hosts[rank]) for rank in of_job])

    def Abort(self, status: int = 1) -> NoReturn:
        os._exit(status)  # torchrun ends the others

    def _Allreduce(self, buffer: Buffer) -> None:
        if self._group is None or buffer.size == 0:
            return
        if buffer.dtype in _SUMMED and buffer.nbytes >= SHORT:  # gloo sends many messages for a sum, one after another
            self._group.allreduce([torch.from_numpy(flat(buffer))]).wait()
        else:
            super()._Allreduce(buffer)

    def _Isend(self, buffer: Buffer, dest: int, tag: int) -> Request:
        return self._started(lambda group, content: group.send([content], dest, tag), buffer)

    def _Irecv(self, buffer: Buffer, source: int, tag: int) -> Request:
        assert buffer.flags.writeable
        return self._started(lambda group, content: group.recv([content], source, tag), buffer)

    def _started(self, start: Callable[[ProcessGroup, Tensor], Work | None], buffer: Buffer) -> Request:
        """Start a message. Both ends know its size, and leave out an empty one."""
        assert self._group is not None, "a rank that is alone has nobody to exchange messages with"
        whole = flat(buffer)
        if not whole.size:
            return _GlooRequest(None)
        # Of memory that must not be written, which torch does not have, a copy is sent.
        return _GlooRequest(
            start(self._group, torch.from_numpy((whole if whole.flags.writeable else whole.copy()).view(np.uint8)))
        )

    def _made_group(self, ranks: Sequence[int]) -> GlooCommunicator:
        """Return a communicator of some ranks of this one, in this order; a collective call of all."""
        self._children += 1
        name = f"{self._name}.{self._children}:{ranks[0]}"  # all groups that are made at once differ in that rank
        members = [self._members[rank] for rank in ranks]
        with self._translated("Split"):
            made = GlooCommunicator(self._store, name, members, list(ranks).index(self.rank), self.events)
        return self._adopt(made)

    @contextmanager
    def _call(self, method: str, *seen: object, **more: object) -> Iterator[None]:
        with super()._call(method, *seen, **more), self._translated(method):  # type: ignore[arg-type]
            yield

    @contextmanager
    def _object_call(self, method: str) -> Iterator[None]:
        with super()._object_call(method), self._translated(method):
            yield

    @contextmanager
    def _translated(self, method: str) -> Iterator[None]:
        """Translate torch's errors to RunErrors that say what happened and what to do."""
        try:
            yield
        except DamagedObjectError as error:
            raise RunError(f"{method} of {self.size} ranks got a damaged message") from error
        except BptError:
            raise
        except RuntimeError as error:
            raise explained(method, self.size, error) from error


class _GlooRequest:
    """A message under way; ``None``: an empty one, which is never sent.

    gloo cannot say whether a message has arrived. So the first ``Test`` starts a thread that waits for it.
    """

    def __init__(self, work: Work | None) -> None:
        self._work = work
        self._error: RuntimeError | None = None
        self._waiting: threading.Thread | None = None

    def Wait(self) -> None:
        if self._waiting:
            self._waiting.join()
        else:
            self._wait()
        if self._error:
            raise self._error

    def Test(self) -> bool:
        if self._waiting is None and self._work:
            self._waiting = threading.Thread(target=self._wait, name="gloo_wait", daemon=True)
            self._waiting.start()
        if self._waiting and self._waiting.is_alive():
            return False
        self.Wait()
        return True

    def _wait(self) -> None:
        work, self._work = self._work, None
        try:
            if work is not None:
                work.wait()
        except RuntimeError as error:
            self._error = error


class _Fence:
    """The memory barrier of a window: that of a lock. There is nothing to free: its memory goes with the arrays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def Sync(self) -> None:
        with self._lock:
            pass

    def Unlock_all(self) -> None:
        pass

    def Free(self) -> None:
        pass


def world() -> GlooCommunicator:
    """Return all ranks that torchrun has started; a collective call.

    Raises:
        RunError: the ranks do not reach each other.
    """
    try:
        store, rank, size = next(rendezvous("env://", timeout=_TO_MEET))
        _trial.append(make_gloo_group(store, "trial", rank, size, _TO_MEET))  # fails in time where the network does
        # From now on ranks connect when they send to each other. Otherwise each rank has a socket to every other one in
        # each group, and with many ranks more of them than a process may have.
        os.environ.setdefault(_LAZY, "1")
        _hosts[:] = [""] * size  # until all are known
        comm = GlooCommunicator(
            store, "world", range(size), rank, EventBus(rank, FlightRecorder() if size > 1 else None)
        )
        _hosts[:] = comm.allgather(comm.host)
    except RuntimeError as error:
        raise RunError(
            f"the ranks that torchrun has started do not reach each other ({first_line_of(error)}); open all ports "
            "between the hosts, or name the network that they share: GLOO_SOCKET_IFNAME=eth0 torchrun … "
            "(ip addr shows the names)"
        ) from error
    return comm


def make_gloo_group(store: Store, name: str, rank: int, size: int, timeout: timedelta = FOREVER) -> ProcessGroup:
    """Return gloo's group of the ranks that call this with one ``name``; a collective call."""
    return cast(ProcessGroup, ProcessGroupGloo(PrefixStore(name, store), rank, size, timeout))


def explained(method: str, ranks: int, error: RuntimeError) -> BptError:
    """Return what an error of torch.distributed means for a run."""
    if _LOST.search(str(error)):
        return lost_rank_error(method, (), ())
    return RunError(f"{method} of {ranks} ranks failed: {first_line_of(error)}")
