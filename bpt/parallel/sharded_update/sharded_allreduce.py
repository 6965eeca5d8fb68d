"""Exchanges of a divided update: gradients are summed by slices, and updated weights are gathered by segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.base.worker_thread import Mark
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.engine.compute import Update
from bpt.engine.optim.weight_slices import WeightSlice
from bpt.engine.scheduler import Scheduler
from bpt.parallel.exchange.base import EXCHANGES, Exchange
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.transport.transport import RING
from bpt.parallel.sharded_update.gather_schedule import GatherAhead
from bpt.parallel.sharded_update.slice_messages import SliceMessage, messages_of


class ShardedUpdate(Exchange):
    """An exchange that sums each slice of the gradients on the rank that updates it, and gathers weights by segments.

    Under ``update: HOST`` the thread that has summed a slice updates it at once, unless the update must see all
    gradients: to clip them, to unscale them, or for rates by layer. Sums that are not finite wait for the end of the
    iteration, where a loss that is not finite ends the run before it spoils weights.
    """

    _early: Update | None = None
    _begun = False  # whether the gradients of this iteration are under way

    @property
    def _segments(self) -> tuple[int, ...]:
        """The segments with parameters whose update is divided."""
        return tuple(number for number, group in enumerate(self.buckets) if group)

    def updates(self, bucket: Bucket) -> bool:
        return True

    def schedule(self, scheduler: Scheduler) -> Scheduler:
        return GatherAhead(scheduler, self._segments)

    def take_early(self, update: Update | None) -> Update | None:
        on_host = self.param is not None and self.param.update == pb.ParallelParameter.HOST
        self._early = update if on_host else None
        return None

    def _update_early(self, slices: Sequence[WeightSlice]) -> bool:
        """Update ``slices``, which have their gradients, if that is due at once; return whether it was."""
        if self._early is None or not all(_is_finite(each.value.grad) for each in slices):
            return False
        self._early([each.value for each in slices], 0, None)
        return True

    def _begin(self) -> None:
        """Read the slices' weights, which a user may have changed, before the first gradients of an iteration."""
        if not self._begun:
            self.slices.read(here=True)
        self._begun = True


@EXCHANGES.register("sharded ALLREDUCE")
class ShardedAllreduce(ShardedUpdate):
    """Sums slices by a reduce-scatter during the backward pass, and gathers weights during the next forward pass.

    These halves of an all-reduce move as many bytes as it. The second one starts at the update and goes segment by
    segment, while the next forward pass runs (DeAR, section 3). So the update lies between them, and a rank updates
    its slices only.
    """

    _messages: list[list[SliceMessage]]

    def _make_ready(self) -> None:
        self._hierarchies = {}
        self._sums: list[tuple[SliceMessage, Tensor]] = []
        self._coming: dict[int, list[tuple[SliceMessage, Tensor, Mark | None]]] = {}  # segment → what is on its way

    def _group(self, buckets: Sequence[Sequence[Bucket]]) -> None:
        super()._group(buckets)
        self._messages = [[m for b in group for m in messages_of(b, self.slices)] for group in self.buckets]

    def start(self, segment: int) -> None:
        self._begin()
        for message in self._messages[segment]:
            sum_up = partial(self._sum, message, message.pack_gradients())
            self.comm_thread.submit(sum_up, do.ExchangeGradients(segment), message.name)

    def _sum(self, message: SliceMessage, gradients: Tensor) -> None:
        run = torch.from_numpy(self.transport.sum_runs(message.comm, gradients.numpy(), message.counts))
        if self._early:
            message.give_gradients(run)
            self._update_early(message.slices)
        else:
            self._sums.append((message, run))

    def wait(self) -> None:
        self.comm_thread.wait()
        for message, run in self._sums:
            message.give_gradients(run)
        self._sums.clear()
        self._begun = False

    def updated(self) -> None:
        for segment in self._segments:
            self._coming[segment] = []
            for message in self._messages[segment]:
                room = message.pack_weights()
                gather = partial(self.transport.gather_runs, message.comm, room.numpy(), message.counts)
                mark = self.comm_thread.submit(gather, do.Gather(segment), message.name)
                self._coming[segment].append((message, room, mark))

    def gather(self, segment: int) -> None:
        for message, room, mark in self._coming.pop(segment, ()):
            if mark is not None:
                self.comm_thread.wait(mark)
            message.unpack_weights(room)

    def close(self, failed: bool = False) -> None:
        if not failed:
            self.complete_weights()
        self._coming.clear()
        super().close(failed)


@EXCHANGES.register("sharded RING")
class ShardedRing(ShardedAllreduce):
    """As ShardedAllreduce, by messages round a ring of the ranks."""

    transport = RING


def _is_finite(gradient: Tensor | None) -> bool:
    """Return whether a gradient is surely finite: a sum shows each number that is not."""
    return gradient is None or math.isfinite(gradient.sum().item())
