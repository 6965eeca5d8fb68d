"""Exchange: how the ranks that hold the same parameters agree on their gradients, and the registry of the ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from bpt.base.registry import Registry
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.compute import Update
from bpt.engine.instructions import Broadcast
from bpt.engine.optim.weight_slices import NO_SLICES, WeightSlice, WeightSlices
from bpt.engine.scheduler import Scheduler
from bpt.parallel.exchange.averaging_context import ALONE, Replicas, TrainingProgress
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.codec.base import Codec
from bpt.parallel.exchange.hierarchy import Hierarchy
from bpt.parallel.exchange.local_steps import LocalSteps, LocalUpdates
from bpt.parallel.exchange.transport.transport import LIBRARY, Send, Transport
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.device import CPU

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import ParallelSpec


class Exchange:
    """Sums gradients over ranks, segment by segment, while backward runs.

    Args:
        buckets: for each segment of the net what finishes with its backward pass; the same cut on all ranks.
        comm_thread: performs the communications, in order.
        device: where parameters and gradients are.
        param: settings of the exchange; ``None``: those of an empty text.
        codec: sums gradients on the links that ``param`` says; ``None``: they travel as they are.
        replicas: that exchange; by default there is one.
        slices: what this rank updates of those parameters that ranks divide.

    Attributes:
        local: when weights are averaged, and gradients are not summed; ``None``: never.
    """

    broadcasts: ClassVar[bool] = False  # whether an iteration starts with the instruction Broadcast
    levels: ClassVar[bool] = False  # whether gradients are added within hosts first, also without a codec
    chunked: ClassVar[bool] = False  # whether it pays to search for the layers whose gradients travel together
    transport: Transport = LIBRARY
    local: LocalSteps | None = None
    buckets: tuple[tuple[Bucket, ...], ...]

    def __init__(
        self,
        buckets: Sequence[Sequence[Bucket]],
        comm_thread: CommThread,
        device: torch.device = CPU,
        param: ParallelSpec | None = None,
        codec: Codec | None = None,
        replicas: Replicas = ALONE,
        slices: WeightSlices = NO_SLICES,
    ) -> None:
        self.comm_thread = comm_thread
        self.device = device
        self.param = param
        self.codec = codec
        self.replicas = replicas
        self.slices = slices
        self._group(buckets)
        self._make_ready()

    def _make_ready(self) -> None:
        """Make what an exchange of this kind needs beside its ``buckets``; a collective call."""
        comms = dict.fromkeys(bucket.comm for group in self.buckets for bucket in group)
        everywhere = self.param is not None and self.param.compression_param.links == pb.CompressionParameter.ALL
        wanted = comms if self.levels or self.codec else {}
        made = {comm: Hierarchy.made(comm, self.transport, self.codec, everywhere) for comm in wanted}
        self._hierarchies = {comm: each for comm, each in made.items() if each}

    def _packed(self, bucket: Bucket, plain: Send) -> Iterator[tuple[str, Callable[[], None]]]:
        """Pack the bucket's gradients: each message's name, and what sums it.

        Args:
            plain: sums it over all ranks at once, without a codec.
        """
        hierarchy = self._hierarchies.get(bucket.comm)
        messages = bucket.pack_gradients()
        if hierarchy:
            sums = [partial(hierarchy, *each) for each in zip(messages, bucket.contents(), strict=True)]
        else:
            sums = [partial(plain, bucket.comm, message) for message in messages]
        return zip(bucket.names, sums, strict=True)

    def _group(self, buckets: Sequence[Sequence[Bucket]]) -> None:
        self.buckets = tuple(tuple(b for b in group if b.parameters and b.comm.size > 1) for group in buckets)

    def regroup(self, buckets: Sequence[Sequence[Bucket]], *, timed: bool = False) -> None:
        """Use another cut of the net into segments, with the same parameters in other groups; between iterations.

        Args:
            timed: wait for copies, too, that the device makes by itself, so that their times are known.
        """
        self._group(buckets)

    def updates(self, bucket: Bucket) -> bool:
        """Return whether this rank updates the bucket's parameters."""
        raise NotImplementedError

    def start(self, segment: int) -> None:
        """Execute the instruction ``ExchangeGradients(segment)``."""
        raise NotImplementedError

    def wait(self) -> None:
        """Execute the instruction ``Wait``: afterwards the gradients of what this rank updates are global."""
        raise NotImplementedError

    def schedule(self, scheduler: Scheduler) -> Scheduler:
        """Return ``scheduler``; where ``local`` says so, its iterations end with Average."""
        return LocalUpdates(scheduler, self.local) if self.local else scheduler

    def broadcast(self) -> None:
        """Execute the instruction ``Broadcast``: all ranks get the weights of the rank that updates them."""
        for group in self.buckets:
            broadcast(group)

    def average(self) -> None:
        """Execute the instruction ``Average``: all ranks get the average of the weights of all replicas."""
        raise NotImplementedError

    def gather(self, segment: int) -> None:
        """Execute the instruction ``Gather(segment)``, of an exchange that divides updates."""

    def take_early(self, update: Update | None) -> Update | None:
        """Take over the early updates of the iteration that begins, if this exchange makes them; most do not."""
        return update

    def updated(self) -> None:
        """Start to send other ranks the weights that only this rank has updated; most exchanges have none."""

    def complete_weights(self) -> None:
        """Wait for the weights of all segments that other ranks have updated; a rank may call it alone."""
        for segment in range(len(self.buckets)):
            self.gather(segment)

    def gradient(self, parameter: nn.Parameter) -> Tensor | None:
        """Return the summed gradient of a parameter after ``Wait``; a collective call if ranks have slices of it."""
        own = self.slices.of(parameter)
        return parameter.grad if own is None else self._gathered(own)

    def _gathered(self, own: WeightSlice) -> Tensor:
        """Return the gradient of a parameter from the slices of all ranks."""
        comm = next(b.comm for group in self.buckets for b in group if any(p is own.parameter for p in b.parameters))
        part = torch.zeros_like(own.value) if own.value.grad is None else own.value.grad.cpu()
        rows = [part.new_empty(stop - start) for start, stop in own.bounds]
        whole = part.new_empty(own.parameter.numel())
        for rank, (row, (start, stop)) in enumerate(zip(rows, own.bounds, strict=True)):
            _ = row.copy_(part) if rank == comm.rank else row
            comm.Bcast(row.numpy(), rank)
            whole[start:stop] = row
        return whole.view(own.parameter.shape).to(own.parameter.device)

    def follow(self, run: TrainingProgress) -> None:
        """Store the progress of a run, before anything is exchanged; most exchanges do not need it."""

    @property
    def replicas_diverged(self) -> bool:
        """Whether the replicas have different weights now; the same on all ranks."""
        return False

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Give all ranks the same weights inside, and their own again afterwards; a collective call."""
        yield

    def state(self) -> Mapping[str, Tensor]:
        """Return what this rank's exchange must keep of past iterations to continue, such as residuals.

        Most need nothing.
        """
        return self.codec.state() if self.codec else {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from this rank's ``state()``; an empty one means that nothing has been exchanged yet."""
        if self.codec:
            self.codec.load(state)

    def close(self, failed: bool = False) -> None:
        """Free the resources of the exchange; a collective call, unless something ``failed``."""
        while self._hierarchies:
            _, hierarchy = self._hierarchies.popitem()
            if not failed:
                hierarchy.close()

    def packed(self) -> dict[str, dict[str, int]]:
        """Return message name → the elements of each parameter in it, for messages of several parameters."""
        return {b.names[0]: b.packed for group in self.buckets for b in group if b.packed}

    def frozen(self) -> set[int]:
        """Return the ``id`` of the parameters that this rank does not update."""
        return {id(p) for group in self.buckets for b in group if not self.updates(b) for p in b.parameters}


def broadcast(buckets: Sequence[Bucket], send: Send = Communicator.Bcast) -> None:
    """Give all ranks the weights of the first rank of each bucket; ``send`` carries a message."""
    for bucket in buckets:
        if bucket.comm.size == 1:
            continue
        for name, message in zip(bucket.names, bucket.pack_weights(), strict=True):
            with bucket.comm.events.part_of(Broadcast(), name):
                send(bucket.comm, message)
        bucket.unpack_weights()


EXCHANGES: Registry[type[Exchange]] = Registry(
    "exchange",
    {
        "bpt.parallel.exchange.allreduce": ("ALLREDUCE",),
        "bpt.parallel.exchange.tree": ("TREE",),
        "bpt.parallel.exchange.ring": ("RING",),
        "bpt.parallel.exchange.local": ("LOCAL",),
        "bpt.parallel.sharded_update.sharded_allreduce": ("sharded ALLREDUCE", "sharded RING"),
        "bpt.parallel.cgdp.exchange": ("CGDP",),
        "bpt.parallel.cgdp.sharded_cgdp": ("sharded CGDP",),
    },
)
