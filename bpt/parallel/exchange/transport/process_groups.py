"""ProcessGroups: sums of gradients by torch.distributed, on the device that has them.

NCCL sums between GPUs, from and to their memory, where each rank has a GPU of its own. Otherwise gloo sums in the
memory of the hosts. If all ranks are on one host, they sum in memory that they share: gloo would send their numbers
through the operating system's network. The launcher does not matter: the ranks find each other through their
communicator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs forget to export it
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroup, Store

from bpt.base.errors import BptError, LostRankError, RunError
from bpt.parallel.exchange.buckets import Bucket
from bpt.system.comm.base import Communicator
from bpt.system.comm.process_group import FOREVER, explained, make_gloo_group
from bpt.system.comm.window_sum import WindowSum
from bpt.system.device import CPU

LOG = logging.getLogger("bpt")


class ProcessGroups:
    """Groups of torch.distributed, one for each communicator. Making them is a collective call.

    Args:
        comms: the communicators, in the same order on all their ranks; those that repeat count once.
        device: where this rank's gradients are.
    """

    def __init__(self, comms: Sequence[Communicator], device: torch.device) -> None:
        self._sums: dict[Communicator, Sum] = {}
        for comm in dict.fromkeys(comms):
            try:
                self._sums[comm] = _make_sum(comm, device)
            except BptError:
                raise
            except RuntimeError as error:
                raise explained("ProcessGroup", comm.size, error) from error

    def packed(self, bucket: Bucket) -> Iterator[tuple[str, Callable[[], None]]]:
        """Pack the bucket's gradients; yield each message's name, and what sums it over the ranks."""
        device = self._sums[bucket.comm].device
        for name, message in zip(bucket.names, bucket.pack_gradients_on(device), strict=True):
            yield name, partial(self._sum, bucket.comm, message)

    def _sum(self, comm: Communicator, message: Tensor) -> None:
        dtype = torch.empty(0, dtype=message.dtype).numpy().dtype
        with comm.summing(message.nbytes, dtype):
            try:
                self._sums[comm].sum(message)
            except BptError:
                raise
            except RuntimeError as error:
                raise explained("Allreduce", comm.size, error) from error

    def close(self) -> None:
        """Free the groups, when no sum is under way; a collective call."""
        while self._sums:
            comm, made = self._sums.popitem()
            comm.Barrier()  # no rank waits in a group any more
            made.close()


class Sum(Protocol):
    """Sums messages over the ranks of a communicator.

    Attributes:
        device: where the messages are.
    """

    device: torch.device

    def sum(self, message: Tensor) -> None:
        """Leave the sum over all ranks in ``message``, which then is complete; a collective call."""

    def close(self) -> None:
        """Free the resources; a collective call."""


class _GlooSum:
    """Sums by gloo, between hosts."""

    device = CPU

    def __init__(self, comm: Communicator) -> None:
        self._group = make_gloo_group(_store(comm), "gradients", comm.rank, comm.size)

    def sum(self, message: Tensor) -> None:
        self._group.allreduce([message]).wait()

    def close(self) -> None:
        pass


class _NcclSum:
    """Sums by NCCL, between GPUs."""

    def __init__(self, comm: Communicator, device: torch.device) -> None:
        self.device = device
        self._group = _nccl(comm)

    def sum(self, message: Tensor) -> None:
        self._group.allreduce([message]).wait()
        torch.cuda.current_stream(self.device).synchronize()  # that was enqueued only

    def close(self) -> None:
        self._group.shutdown()


class _HostSum:
    """Sums in the memory of the one host that all ranks are on."""

    device = CPU

    def __init__(self, comm: Communicator) -> None:
        self._sum = WindowSum(comm)

    def sum(self, message: Tensor) -> None:
        self._sum.sum(message.numpy())

    def close(self) -> None:
        self._sum.free()


def _make_sum(comm: Communicator, device: torch.device) -> Sum:
    """Return the fastest way to sum on ``device``; a collective call."""
    if backend_of(comm, device) == "nccl":
        return _NcclSum(comm, device)
    if not comm.spans_hosts:
        try:
            return _HostSum(comm)
        except LostRankError:
            raise
        except RunError as error:  # a container may have little memory that ranks can share
            LOG.warning("gloo sums gradients, which is slower: %s", error)
    return _GlooSum(comm)


def backend_of(comm: Communicator, device: torch.device) -> str:
    """Return the library that sums gradients on ``device``: "nccl" or "gloo"; a collective call.

    NCCL needs a GPU for each rank.
    """
    own = ""
    if device.type == "cuda" and dist.is_nccl_available():
        own = f"{comm.host} {torch.cuda.get_device_properties(device).uuid}"
    everybody = comm.allgather(own)
    return "nccl" if all(everybody) and len(set(everybody)) == comm.size else "gloo"


def _nccl(comm: Communicator) -> ProcessGroup:
    from torch.distributed.distributed_c10d import ProcessGroupNCCL  # noqa: PLC0415  PyTorch for CPUs has none

    options = ProcessGroupNCCL.Options()
    options._timeout = FOREVER
    store = PrefixStore("gradients", _store(comm))
    return cast(ProcessGroup, ProcessGroupNCCL(store, comm.rank, comm.size, options))


def _store(comm: Communicator) -> Store:
    """Return a store of these ranks, in which groups meet; the first rank keeps it, at a free port."""
    host = comm.host if comm.spans_hosts else "127.0.0.1"
    kept = TCPStore(host, 0, is_master=True, wait_for_workers=False) if comm.rank == 0 else None
    host, port = comm.bcast((host, kept.port if kept else 0))
    return kept or TCPStore(host, port, is_master=False, wait_for_workers=False)
