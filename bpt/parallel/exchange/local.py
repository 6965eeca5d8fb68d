"""LOCAL: each replica updates by its own gradients, and weights are averaged every few iterations (Local SGD).

S. Stich: Local SGD converges fast and communicates little. ICLR 2019. From an iteration on, with gradients summed in
those before: T. Lin, S. Stich, K. Patel, M. Jaggi: Don't use large mini-batches, use local SGD. ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.parallel.exchange.allreduce import Allreduce
from bpt.parallel.exchange.averaging_context import TrainingProgress
from bpt.parallel.exchange.base import EXCHANGES
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.flat import flatten, unflatten
from bpt.parallel.exchange.local_steps import LocalSteps
from bpt.parallel.exchange.outer_versions import OuterVersions
from bpt.system.comm.base import Communicator

_Momentum = pb.LocalParameter


@dataclass(frozen=True)
class _Group:
    """The ranks of a bucket that sum gradients in each iteration: the shards of a replica, or the replicas of a host.

    Attributes:
        comm: of these ranks.
        replicas: that they are, or belong to.
        is_all: whether they are all that hold the bucket's parameters, so that there is nothing to average.
    """

    comm: Communicator
    replicas: tuple[int, ...]
    is_all: bool


@EXCHANGES.register("LOCAL")
class Local(Allreduce):
    """Local SGD: each replica updates by the gradient of the mean loss of its own samples.

    That gradient is its summand of the batch's, divided by its part of the batch. So each replica trains as one process
    does with smaller batches.

    An average is that of the replicas' weights, each times its part of the batch; so one step without momentum, and the
    average, is the update by the whole batch's gradient. With ``outer_param`` the next version is a step towards the
    average (OuterVersions). Moments are averaged alike, kept, or begin at 0. The average
    over iterations (EMA, SWA) is averaged in any case: it is then that of the averaged weights.

    Between two averages ranks hold different weights. ``whole`` lets all of them have the averages for a while, to be
    tested and written, and ``state`` is then, too, what this rank continues with.
    """

    _own_values: dict[str, Tensor] | None = None

    def _make_ready(self) -> None:
        super()._make_ready()
        assert self.param is not None
        self._settings = self.param.local_param
        self._versions = OuterVersions(self.param.outer_param)
        comms = dict.fromkeys(bucket.comm for group in self.buckets for bucket in group)
        self._groups = {comm: self._group_of(comm) for comm in comms}
        everything_summed = all(group.is_all for group in self._groups.values())
        if self.replicas.count > 1 and not (self._settings.sum_within_hosts and everything_summed):
            self.local = LocalSteps(self._settings.steps, self._settings.start_iter)

    def _group_of(self, comm: Communicator) -> _Group:
        """Return this rank's group; a collective call of ``comm``."""
        own = comm.Split_type_shared() if self._settings.sum_within_hosts else comm.Split(self.replicas.own)
        replicas = tuple(dict.fromkeys(own.allgather(self.replicas.own)))
        return _Group(own, replicas, own.size == comm.size)

    def follow(self, run: TrainingProgress) -> None:
        self._run = run

    @property
    def replicas_diverged(self) -> bool:
        return self.local is not None and self.local.replicas_diverged(self._run.iterations())

    @property
    def _is_local(self) -> bool:
        """Whether the gradients of the current iteration stay within their replica."""
        return self.local is not None and self.local.is_local(self._run.iterations())

    def start(self, segment: int) -> None:
        if not self._is_local:
            super().start(segment)
            return
        for bucket in self.buckets[segment]:
            comm = self._groups[bucket.comm].comm
            if comm.size > 1:
                for name, message in zip(bucket.names, bucket.pack_gradients(), strict=True):
                    self.comm_thread.submit(partial(comm.Allreduce, message), do.ExchangeGradients(segment), name)

    def wait(self) -> None:
        if not self._is_local:
            super().wait()
            return
        self.comm_thread.wait()
        self._versions.begin(self._averaged_buckets)
        for bucket in (bucket for group in self.buckets for bucket in group):
            group = self._groups[bucket.comm]
            if group.comm.size > 1:
                bucket.unpack_gradients()
            part = self.replicas.part(group.replicas)
            gradients = [p.grad for p in bucket.parameters if p.grad is not None]
            if part and gradients:  # a replica without samples has none but zeros
                torch._foreach_mul_(gradients, 1 / part)

    def average(self) -> None:
        self._average(moments=self._settings.momentum == _Momentum.AVERAGE, steps=True)
        if self._settings.momentum == _Momentum.RESET:
            for bucket in self._averaged_buckets:
                for parameter in bucket.parameters:
                    torch._foreach_zero_(list(self._run.optimizer_state(parameter)[0]))

    @contextmanager
    def whole(self) -> Iterator[None]:
        own = dict(self._own())
        if not own or self._own_values is not None:
            yield
            return
        own_values = self._own_values = {name: value.clone() for name, value in own.items()}
        self._average(weights=self.replicas_diverged, moments=True)
        try:
            yield
        finally:
            self._own_values = None
            self._load_own(own_values)

    def state(self) -> Mapping[str, Tensor]:
        """Return what this rank alone has: weights and moments between averages.

        Moments that are kept, and outer momentum, at any time.
        """
        own = self._own_values if self._own_values is not None else dict(self._own())
        return own | self._versions.state(self.replicas_diverged)

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._versions.load(state)
        self._load_own(state)

    @torch.no_grad()
    def _load_own(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self._own():
            if name in state:
                value.copy_(state[name])

    def close(self, failed: bool = False) -> None:
        while self._groups:
            _, group = self._groups.popitem()
            if not failed:
                group.comm.Free()
        super().close(failed)

    @property
    def _averaged_buckets(self) -> list[Bucket]:
        """The buckets whose parameters are not updated alike on all ranks."""
        return [each for group in self.buckets for each in group if not self._groups[each.comm].is_all]

    def _own(self) -> Iterator[tuple[str, Tensor]]:
        """Yield by parameter what is not equal on all ranks now."""
        diverged, keeps = self.replicas_diverged, self._settings.momentum == _Momentum.KEEP
        if self.local is None or not (diverged or (keeps and self._run.iterations() > self.local.start)):
            return
        for bucket in self._averaged_buckets:
            for name, parameter in zip(bucket.elements, bucket.parameters, strict=True):
                moments, averages = self._run.optimizer_state(parameter)
                if diverged:
                    yield name, parameter.detach()
                    moments = [*moments, *averages]
                for number, moment in enumerate(moments):
                    yield f"{name} moment {number}", moment

    @torch.no_grad()
    def _average(self, *, weights: bool = True, moments: bool, steps: bool = False) -> None:
        """Give all ranks the averages, and change nothing before all are complete; a collective call.

        Args:
            weights: those of weights, and of their averages over iterations.
            moments: those of moments.
            steps: whether weights become the outer optimizer's next version instead of the average.
        """
        self.comm_thread.wait()
        summed: list[tuple[list[Tensor], Tensor]] = []
        versions: list[tuple[Bucket, Tensor]] = []
        for bucket in self._averaged_buckets:
            group = self._groups[bucket.comm]
            factor = self.replicas.part(group.replicas) / group.comm.size
            for what, tensors in self._averaged(bucket, weights, moments):
                row = flatten(tensor.to("cpu", bucket.wire) for tensor in tensors).mul_(factor)
                with bucket.comm.events.part_of(do.Average(), f"{what} of {bucket.label}"):
                    self._sum_up(bucket.comm, row)
                summed.append((tensors, row))
                if steps and what == "weights":
                    versions.append((bucket, row))
        for bucket, row in versions:
            self._versions.step(bucket, row)
        for tensors, row in summed:
            for tensor, mean in zip(tensors, unflatten(row, tensors), strict=True):
                tensor.copy_(mean)

    def _sum_up(self, comm: Communicator, row: Tensor) -> None:
        hierarchy = self._hierarchies.get(comm)
        if hierarchy:
            hierarchy(row.numpy(), {})
        else:
            comm.Allreduce(row.numpy())

    def _averaged(self, bucket: Bucket, weights: bool, moments: bool) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield the averages of a bucket's parameters, in one message each, for ``_average``."""
        if weights:
            yield "weights", [parameter.detach() for parameter in bucket.parameters]
        states = [self._run.optimizer_state(parameter) for parameter in bucket.parameters]
        for number, of_all in enumerate(zip(*(own for own, _ in states), strict=True) if moments else ()):
            yield f"moment {number}", list(of_all)
        for of_all in zip(*(averages for _, averages in states), strict=True) if weights else ():
            yield "average", list(of_all)
