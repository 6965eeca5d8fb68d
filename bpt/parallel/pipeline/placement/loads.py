"""The loads of each device by placements of partitions: seconds and bytes, for many placements at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline.placement.partition_crossings import Columns, Floats, Ints, PartitionCrossings
from bpt.parallel.pipeline.placement.problem import Problem

ROUNDING = 1e-9  # relative: nearer numbers are equal
AT_ONCE = 2**16  # genes and reads of crossings that are summed at once


def excess(needed: Floats, there: Floats | float) -> Floats:
    """Return by how much ``needed`` exceeds ``there``; 0 if that is less than rounding."""
    found: Floats = np.where(needed <= there * (1 + ROUNDING), 0.0, needed - there)
    return found


_Param = pb.PipelineParameter
_BY_BLOCKS = (_Param.ONE_F_ONE_B, _Param.DELAYED, _Param.ZERO_BUBBLE)
"""The schedules under which a device holds as much of a batch as the number of blocks says."""
FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)
Load: TypeAlias = Callable[["Loads", Ints], Floats]


def by_blocks(load: Load) -> Load:
    """Run ``load`` on a few chromosomes at a time, so that its intermediate arrays stay in the cache."""

    @wraps(load)
    def found(loads: Loads, genes: Ints) -> Floats:
        few = max(1, AT_ONCE // (loads.n + len(loads.crossings.pair_reader)))
        blocks = [load(loads, genes[row : row + few]) for row in range(0, max(len(genes), 1), few)]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    return found


class Loads:
    """The partitions of a problem as arrays.

    A chromosome is the device of each partition, in order of the net; most methods take K of them, (K, n).

    Args:
        starts: the first layer of each partition, ascending from 0; each must be one of the problem's cuts.

    Attributes:
        n, m: numbers of partitions and devices.
        work, parameters, activations: (n,) of the partitions, without layers that run on stage 0 for all.
        again: (n,) the work of a second forward pass; 0 if there is none.
        speeds, memory: (m,) of the devices.
        capacity: (m,) the work that each device may get at most; infinite: any.
        copied: (n,) bytes of a copy of trained parameters' values, of which DELAYED keeps some; 0 under other rules.
        added: (n,) bytes of the largest gradient that is added to another one; 0 if none is.
        source_memory: bytes on stage 0 of layers without bottoms.
        room: (m,) the divisor that makes memory comparable: the devices' memory if all of it is known, otherwise 1.
        crossings: the blobs that partitions read from each other.
    """

    def __init__(self, problem: Problem, starts: Sequence[int]) -> None:
        assert starts[0] == 0 and set(starts) <= set(problem.cuts), (starts, problem.together)
        self.problem = problem
        self.starts = tuple(starts)
        self.n = len(starts)
        self.m = len(problem.devices)
        sources = set(problem.sources)
        part = np.searchsorted(np.asarray(starts), np.arange(len(problem.costs)), side="right") - 1
        self.work = np.zeros(self.n)
        self.again = np.zeros(self.n)
        self.parameters = np.zeros(self.n)
        self.activations = np.zeros(self.n)
        self.copied = np.zeros(self.n)
        self.added = np.zeros(self.n)
        self.source_memory = 0.0
        delayed = problem.rule == pb.PipelineParameter.DELAYED
        for layer, cost in enumerate(problem.costs):
            self.work[part[layer]] += cost.work
            self.again[part[layer]] += cost.forward * problem.recomputes
            if layer in sources:
                self.source_memory += cost.parameters + cost.activations
            else:
                self.parameters[part[layer]] += cost.parameters
                self.activations[part[layer]] += cost.activations
                self.copied[part[layer]] += cost.trained * delayed
                self.added[part[layer]] = max(self.added[part[layer]], cost.largest * problem.adds)
        self.speeds = np.array([device.speed for device in problem.devices], dtype=np.float64)
        self.memory = np.array([device.memory for device in problem.devices], dtype=np.float64)
        share = np.array([device.capacity for device in problem.devices], dtype=np.float64)
        self.capacity = np.full(self.m, np.inf)
        np.multiply(share, self.work.sum(), out=self.capacity, where=share < np.inf)
        known = bool(np.isfinite(self.memory).all() and self.memory.all())
        self.room = self.memory if known else np.ones(self.m)
        self.crossings = PartitionCrossings(problem, part, sources)

    def one_hot(self, genes: Ints) -> NDArray[np.bool_]:
        """Return (K, n, m): whether a partition is on a device."""
        found: NDArray[np.bool_] = genes[:, :, None] == np.arange(self.m)
        return found

    @by_blocks
    def working(self, genes: Ints) -> Floats:
        """Return (K, m): the seconds in which a device computes."""
        columns = _columns(genes)
        work = self.work[:, None]
        if self.problem.recomputes:
            work = work + self.again[:, None] * ((_blocks_from(columns) > 1) | self.all_again)
        found: Floats = self._totals(_slots(columns), work) / self.speeds
        return found

    @property
    def all_again(self) -> bool:
        """Whether the last run of layers runs forward again, too, if any does."""
        return self.problem.rule == _Param.GPIPE

    def sums(self, values: Floats, genes: Ints) -> Floats:
        """Return (K, m): the sum of ``values`` (n,) over the partitions of each device."""
        return self._totals(_slots(_columns(genes)), values[:, None])

    def _totals(self, slots: Ints, values: Floats) -> Floats:
        """Return (K, m): the sums of ``values``, (p, K) or (p, 1), over each device; ``slots`` are from ``_slots``."""
        k = slots.shape[1]
        found = np.bincount(slots.ravel(), np.broadcast_to(values, slots.shape).ravel(), self.m * k)
        totals: Floats = found.astype(np.float64, copy=False).reshape(self.m, k).T  # an empty count has integers
        return totals

    @by_blocks
    def received(self, genes: Ints) -> Floats:
        """Return (K, m): the seconds in which blobs travel to a device, and their diffs back from it."""
        if not self.crossings.seconds.any():
            return np.zeros((len(genes), self.m))
        readers, sent = self.crossings.sent(_columns(genes))
        return self._totals(_slots(readers), self.crossings.pair_seconds[:, None] * sent)

    def idle(self, genes: Ints) -> Ints:
        """Return (K,): the number of devices without a partition."""
        used = np.zeros((self.m, len(genes)), dtype=np.bool_)
        used.ravel()[_slots(_columns(genes))] = True
        found: Ints = self.m - used.sum(0)
        return found

    def alive(self, genes: Ints) -> Floats:
        """Return (K, n): the part of a batch that a partition holds at once: of its inputs, and of its activations.

        Under GPIPE all micro-batches run forward before one runs backward; under SEQUENTIAL there is one micro-batch at
        a time. Under ONE_F_ONE_B a block, which is a run of partitions on one device, holds one micro-batch for itself
        and one for each block behind it. DELAYED does the same with whole batches. Under ZERO_BUBBLE a block holds one
        micro-batch for each block of the net.
        """
        found: Floats = np.broadcast_to(self._alive(_columns(genes)).T, genes.shape)
        return found

    def _alive(self, columns: Columns) -> Floats:
        """Return ``alive``, (n, K), or (n, 1) if it does not depend on the placement."""
        rule = self.problem.rule
        if rule not in _BY_BLOCKS:
            return np.full((self.n, 1), self.least_alive)
        behind = _blocks_from(columns)
        if rule == pb.PipelineParameter.DELAYED:
            return behind.astype(np.float64)
        if rule == pb.PipelineParameter.ZERO_BUBBLE:
            behind = np.broadcast_to(behind[:1], behind.shape)
        return np.minimum(behind, self.problem.micro_batches) / self.problem.micro_batches

    def run_again(self, alive: FloatOrFloats) -> FloatOrFloats:
        """Return the part of a batch's activations that is held where ``alive`` is that of the inputs.

        If micro-batches run forward again, a device has the activations of one. A backward pass in two parts keeps them
        until the second one, and what gathers micro-batches runs all of them.
        """
        problem = self.problem
        keeps = problem.rule == pb.PipelineParameter.ZERO_BUBBLE or problem.gathers
        return alive if keeps or not problem.recomputes else alive * 0 + 1.0 / problem.micro_batches

    @property
    def least_alive(self) -> float:
        """The least part of a batch that a partition holds, wherever it is; ``alive`` describes it."""
        rules = (_Param.ONE_F_ONE_B, _Param.ZERO_BUBBLE, _Param.SEQUENTIAL)
        return 1.0 / self.problem.micro_batches if self.problem.rule in rules else 1.0

    @cached_property
    def memory_bound(self) -> float:
        """Upper bound on the bytes that a device needs, for any placement."""
        alive = float(self.alive(np.arange(self.n)[None]).max())
        blobs = self.activations.sum() + self.crossings.bytes.sum()
        weights = self.parameters.sum() + (alive - 1) * self.copied.sum() + self.added.max()
        return float(self.source_memory + weights + alive * blobs)

    @property
    def always_fits(self) -> bool:
        """Whether every placement fits into the devices' memory."""
        return float(self.memory.min()) >= self.memory_bound

    @property
    def has_capacities(self) -> bool:
        """Whether the capacity of some device is less than all of the work."""
        return bool((self.capacity < self.work.sum()).any())

    def excess_work(self, genes: Ints) -> Floats:
        """Return (K, m): the work of each device beyond its capacity."""
        return excess(self.sums(self.work, genes), self.capacity)

    @by_blocks
    def memory_of(self, genes: Ints) -> Floats:
        """Return (K, m): the bytes of each device: ``weights`` and ``blobs``."""
        columns = _columns(genes)
        alive = self._alive(columns)
        slots = _slots(columns)
        own = self._totals(slots, self._trained(alive) + self.activations[:, None] * self.run_again(alive))
        return own + self._largest(slots) + self._received_bytes(columns, alive)

    def memory_shares(self, genes: Ints) -> Floats:
        """Return (K, m): the part of each device's memory that is taken, or the bytes, as ``room`` says."""
        found: Floats = self.memory_of(genes) / self.room
        return found

    def weights(self, genes: Ints) -> Floats:
        """Return (K, m): the bytes of each device's parameters, with all that training keeps for them.

        Under DELAYED a partition keeps a copy of the values for each stage behind it, with which batches under way run
        backward. If gradients add up, there must be memory for the largest one that is added.
        """
        columns = _columns(genes)
        slots = _slots(columns)
        return self._totals(slots, self._trained(self._alive(columns))) + self._largest(slots)

    def _trained(self, alive: Floats) -> Floats:
        """Return the bytes of each partition's parameters, like ``alive`` (n, K) or (n, 1)."""
        found: Floats = self.parameters[:, None]
        if self.copied.any():
            found = found + self.copied[:, None] * (alive - 1)
        return found

    def _largest(self, slots: Ints) -> Floats:
        """Return (K, m): the bytes of the largest gradient that is added on each device."""
        most: Floats = np.zeros((self.m, slots.shape[1]))
        if self.added.any():
            order = self.added.argsort()
            most.ravel()[slots[order]] = self.added[order, None]  # the last value of a slot remains
        found: Floats = most.T
        return found

    def blobs(self, genes: Ints) -> Floats:
        """Return (K, m): the bytes of each device's live activations, and of blobs received from others.

        The first partition that reads a blob on a device keeps it longest.
        """
        columns = _columns(genes)
        alive = self._alive(columns)
        own = self._totals(_slots(columns), self.activations[:, None] * self.run_again(alive))
        return own + self._received_bytes(columns, alive)

    def _received_bytes(self, columns: Columns, alive: Floats) -> Floats:
        """Return (K, m): the bytes of blobs received from others, and on stage 0 of layers without bottoms."""
        readers, sent = self.crossings.sent(columns)
        held = self.crossings.pair_bytes[:, None] * alive[self.crossings.pair_reader]
        found = self._totals(_slots(readers), held * sent)
        found[:, 0] += self.source_memory
        return found


def _columns(genes: Ints) -> Columns:
    """Return the columns of chromosomes (K, n)."""
    return np.ascontiguousarray(genes.T, dtype=np.int16)


def _blocks_from(columns: Columns) -> Ints:
    """Return (n, K): the number of blocks from that of each partition to the last one."""
    found = np.ones(columns.shape, dtype=np.int64)
    found[:-1] += (columns[:0:-1] != columns[-2::-1]).cumsum(0, dtype=np.int64)[::-1]
    return found


def _slots(devices: Columns) -> Ints:
    """Return (p, K): the index of a chromosome's device in a table (m, K)."""
    found = devices.astype(np.int64)
    found *= devices.shape[1]
    found += np.arange(devices.shape[1])
    return found


LITTLE = 0.01  # of the net's work


def idle_stages(problem: Problem, starts: Sequence[int], stages: Sequence[int]) -> list[str]:
    """Return a line for the user about each stage with less than 1 % of the work; nothing without work.

    Args:
        starts: the first layer of each partition.
        stages: the stage of each partition.
    """
    if not problem.work:
        return []
    loads, genes = Loads(problem, starts), np.array([stages], dtype=np.int64)
    parts = loads.sums(loads.work, genes)[0] / problem.work
    memory = loads.memory_of(genes)[0]
    filled = memory / memory.sum()
    return [
        f"stage {stage} ({problem.devices[stage].name}) has {parts[stage]:.1%} of the work and {filled[stage]:.1%} of "
        "the memory; if memory allows it, fewer stages may be as fast"
        for stage in np.flatnonzero(parts < LITTLE).tolist()
    ]
