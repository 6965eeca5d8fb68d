"""ProcessGroups: sums of gradients by torch.distributed, on the device that has them.

NCCL sums between GPUs, from and to their memory, where each rank has a GPU of its own. Otherwise gloo sums in the
host's memory. The launcher does not matter: the ranks find each other through their communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its stubs forget to export it
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroup, Store

from bpt.base.errors import BptError
from bpt.parallel.exchange.buckets import Bucket
from bpt.system.comm.base import Communicator
from bpt.system.comm.process_group import FOREVER, explained, make_gloo_group
from bpt.system.device import CPU


class ProcessGroups:
    """Groups of torch.distributed, one for each communicator. Making them is a collective call.

    Args:
        comms: the communicators, in the same order on all their ranks; those that repeat count once.
        device: where this rank's gradients are.

    Attributes:
        backend: the library that sums, "nccl" or "gloo".
    """

    def __init__(self, comms: Sequence[Communicator], device: torch.device) -> None:
        self._groups: dict[Communicator, tuple[torch.device, ProcessGroup]] = {}
        for comm in dict.fromkeys(comms):
            by_nccl = backend_of(comm, device) == "nccl"
            try:
                self._groups[comm] = (device, _nccl(comm)) if by_nccl else (CPU, _gloo(comm))
            except BptError:
                raise
            except RuntimeError as error:
                raise explained("ProcessGroup", comm.size, error) from error

    def packed(self, bucket: Bucket) -> Iterator[tuple[str, Callable[[], None]]]:
        """Pack the bucket's gradients; yield each message's name, and what sums it over the ranks."""
        device, _ = self._groups[bucket.comm]
        for name, message in zip(bucket.names, bucket.pack_gradients_on(device), strict=True):
            yield name, partial(self._sum, bucket.comm, message)

    def _sum(self, comm: Communicator, message: Tensor) -> None:
        device, group = self._groups[comm]
        dtype = torch.empty(0, dtype=message.dtype).numpy().dtype
        with comm.summing(message.nbytes, dtype):
            try:
                group.allreduce([message]).wait()
                if device.type == "cuda":  # that was enqueued only
                    torch.cuda.current_stream(device).synchronize()
            except RuntimeError as error:
                raise explained("Allreduce", comm.size, error) from error

    def close(self) -> None:
        """Free the groups, when no sum is under way; a collective call."""
        while self._groups:
            comm, (device, group) = self._groups.popitem()
            comm.Barrier()  # no rank waits in a group any more
            if device.type == "cuda":
                group.shutdown()


def backend_of(comm: Communicator, device: torch.device) -> str:
    """Return the library that sums gradients on ``device``: "nccl" or "gloo"; a collective call.

    NCCL needs a GPU for each rank.
    """
    own = ""
    if device.type == "cuda" and dist.is_nccl_available():
        own = f"{comm.host} {torch.cuda.get_device_properties(device).uuid}"
    everybody = comm.allgather(own)
    return "nccl" if all(everybody) and len(set(everybody)) == comm.size else "gloo"


def _gloo(comm: Communicator) -> ProcessGroup:
    return make_gloo_group(_store(comm), "gradients", comm.rank, comm.size)


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
