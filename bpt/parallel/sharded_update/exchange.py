"""Exchanges of a divided update: gradients are summed by slices, and updated weights are gathered by segments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from bpt.base.worker_thread import Mark
from bpt.engine import instructions as do
from bpt.engine.scheduler import Scheduler
from bpt.parallel.exchange.base import EXCHANGES, Exchange
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.transport.transport import RING
from bpt.parallel.sharded_update.gather_schedule import GatherAhead
from bpt.parallel.sharded_update.slice_messages import SliceMessage, messages_of


@EXCHANGES.register("ALLREDUCE of slices")
class SlicedAllreduce(Exchange):
    """Sums each slice of the gradients on the rank that updates it, and gathers the weights ahead of the forward pass.

    The two halves of an all-reduce, reduce-scatter and all-gather, move as many bytes as it. The first travels while
    backward runs, the second from the update on, segment by segment, while the next forward pass runs (DeAR, section
    3). So the update lies between them, and a rank updates its slices only.
    """

    _messages: list[list[SliceMessage]]

    def _make_ready(self) -> None:
        self._hierarchies = {}
        self._sums: list[tuple[SliceMessage, Tensor]] = []
        self._coming: dict[int, list[tuple[SliceMessage, Tensor, Mark | None]]] = {}  # segment → what is on its way

    def _group(self, buckets: Sequence[Sequence[Bucket]]) -> None:
        super()._group(buckets)
        self._messages = [[m for b in group for m in messages_of(b, self.slices)] for group in self.buckets]

    def updates(self, bucket: Bucket) -> bool:
        return True

    def schedule(self, scheduler: Scheduler) -> Scheduler:
        return GatherAhead(scheduler, tuple(number for number, group in enumerate(self._messages) if group))

    def start(self, segment: int) -> None:
        for message in self._messages[segment]:
            sum_up = partial(self._sum, message, message.pack_gradients())
            self.comm_thread.submit(sum_up, do.ExchangeGradients(segment), message.name)

    def _sum(self, message: SliceMessage, gradients: Tensor) -> None:
        run = self.transport.sum_runs(message.comm, gradients.numpy(), message.counts)
        self._sums.append((message, torch.from_numpy(run)))

    def wait(self) -> None:
        self.comm_thread.wait()
        self.slices.read()
        for message, run in self._sums:
            message.give_gradients(run)
        self._sums.clear()

    def updated(self) -> None:
        for segment, messages in enumerate(self._messages):
            self._coming[segment] = []
            for message in messages:
                room = message.pack_weights()
                gather = partial(self.transport.gather_runs, message.comm, room.numpy(), message.counts)
                mark = self.comm_thread.submit(gather, do.Gather(segment), message.name)
                self._coming[segment].append((message, room, mark))

    def gather(self, segment: int) -> None:
        for message, room, mark in self._coming.pop(segment, ()):
            if mark is not None:
                self.comm_thread.wait(mark)
            message.unpack_weights(room)

    def complete_weights(self) -> None:
        for segment in list(self._coming):
            self.gather(segment)

    def gradient(self, parameter: nn.Parameter) -> Tensor | None:
        own = self.slices.of(parameter)
        if own is None:
            return parameter.grad
        message = next(m for group in self._messages for m in group if own in m.slices)
        whole = np.empty(parameter.numel(), own.value.detach().cpu().numpy().dtype)
        part = torch.zeros_like(own.value) if own.value.grad is None else own.value.grad
        counts = [stop - start for start, stop in own.bounds]
        message.comm.Allgatherv(part.detach().cpu().numpy(), whole, counts)
        return torch.from_numpy(whole).view(parameter.shape).to(parameter.device)

    def close(self, failed: bool = False) -> None:
        if not failed:
            self.complete_weights()
        self._coming.clear()
        super().close(failed)


@EXCHANGES.register("RING of slices")
class SlicedRing(SlicedAllreduce):
    """As ALLREDUCE of slices, by messages round a ring of the ranks."""

    transport = RING
