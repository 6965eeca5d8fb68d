"""What placements of given partitions ask of each device: seconds and bytes, for many placements at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bpt.placement.problem import Problem
from bpt.proto import bpt_pb2 as pb

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


ROUNDING = 1e-9  # relative: nearer numbers are equal


def lacking(needed: Floats, there: Floats | float) -> Floats:
    """What is needed beyond what is there; 0 where that is less than rounding."""
    found: Floats = np.where(needed <= there * (1 + ROUNDING), 0.0, needed - there)
    return found


class Loads:
    """The partitions of a problem, as arrays.

    A chromosome is the device of each partition, in order of the net; most methods take K of them, (K, n).

    Args:
        problem: whose layers are divided.
        starts: the first layer of each partition, ascending from 0; all of them may be cut there.

    Attributes:
        n, m: numbers of partitions and devices.
        work, parameters, activations: (n,) of the partitions, without layers that run on stage 0 for all.
        speeds, memory: (m,) of the devices.
        copied: (n,) bytes of a copy of trained parameters' values, of which DELAYED keeps some; 0 under other rules.
        added: (n,) bytes of the largest gradient that is added to another one; 0 where none is.
        source_memory: bytes on stage 0 of layers without bottoms.
        room: (m,) what memory is divided by for shares to compare: that of the devices if all of it is known, else 1.
        producers: (C,) the partition that makes each crossing; -1: a layer without bottoms, on stage 0.
        readers: for each crossing the partitions that read it, ascending, without the producer.
        seconds: (C,) that it takes to one device, and back.
        bytes: (C,) that it takes at a device that reads it.
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
        self.parameters = np.zeros(self.n)
        self.activations = np.zeros(self.n)
        self.copied = np.zeros(self.n)
        self.added = np.zeros(self.n)
        self.source_memory = 0.0
        delayed = problem.rule == pb.PipelineParameter.DELAYED
        for layer, cost in enumerate(problem.costs):
            self.work[part[layer]] += cost.work
            if layer in sources:
                self.source_memory += cost.parameters + cost.activations
            else:
                self.parameters[part[layer]] += cost.parameters
                self.activations[part[layer]] += cost.activations
                self.copied[part[layer]] += cost.trained * delayed
                self.added[part[layer]] = max(self.added[part[layer]], cost.largest * problem.adds)
        self.speeds = np.array([device.speed for device in problem.devices], dtype=np.float64)
        self.memory = np.array([device.memory for device in problem.devices], dtype=np.float64)
        known = bool(np.isfinite(self.memory).all() and self.memory.all())
        self.room = self.memory if known else np.ones(self.m)
        self._cross(part, sources)

    def _cross(self, part: NDArray[np.intp], sources: set[int]) -> None:
        link, messages = self.problem.link, self.problem.micro_batches
        merged: dict[tuple[int, tuple[int, ...]], list[float]] = {}
        for crossing in self.problem.crossings:
            producer = -1 if crossing.producer in sources else int(part[crossing.producer])
            readers = tuple(sorted({int(part[layer]) for layer in crossing.readers} - {producer}))
            if readers:
                total = merged.setdefault((producer, readers), [0.0, 0.0])
                total[0] += link.seconds(crossing.bytes, messages) * (1 + crossing.diff)
                total[1] += crossing.bytes
        self.producers = np.array([producer for producer, _ in merged], dtype=np.int64)
        self.readers = tuple(readers for _, readers in merged)
        self.seconds = np.array([total[0] for total in merged.values()])
        self.bytes = np.array([total[1] for total in merged.values()])
        pairs = [(index, reader) for index, readers in enumerate(self.readers) for reader in readers]
        self._pair_crossing = np.array([index for index, _ in pairs], dtype=np.int64)
        self._pair_reader = np.array([reader for _, reader in pairs], dtype=np.int64)

        # (crossings, pairs): the first reader of each, the second one of those that have two, and so on.
        rank = np.array([place for readers in self.readers for place in range(len(readers))], dtype=np.int64)
        self._ranks = [
            (self._pair_crossing[pairs], pairs)
            for pairs in (np.flatnonzero(rank == place) for place in range(int(rank.max(initial=-1)) + 1))
        ]

    def one_hot(self, genes: Ints) -> NDArray[np.bool_]:
        """(K, n, m): whether a partition is on a device."""
        found: NDArray[np.bool_] = genes[:, :, None] == np.arange(self.m)
        return found

    def _makers(self, columns: NDArray[np.int16]) -> NDArray[np.int16]:
        """(C, K): the device that sends."""
        return np.where(self.producers[:, None] < 0, 0, columns[self.producers]).astype(np.int16, copy=False)

    def working(self, genes: Ints) -> Floats:
        """(K, m): seconds in which a device computes."""
        found: Floats = self.sums(self.work, genes) / self.speeds
        return found

    def sums(self, values: Floats, genes: Ints) -> Floats:
        """(K, m): the sum of ``values`` (n,) over the partitions of each device."""
        columns = _columns(genes)
        return np.stack([values @ (columns == device) for device in range(self.m)], 1)

    def received(self, genes: Ints) -> Floats:
        """(K, m): seconds in which blobs travel to a device, and their diffs back from it."""
        if not self.seconds.any():
            return np.zeros((len(genes), self.m))
        # All is done for one device after the other, with the chromosomes in the last axis: K is large, m and C small.
        seconds = np.zeros((self.m, len(genes)))
        columns = _columns(genes)
        readers = columns[self._pair_reader]
        makers = self._makers(columns)
        for device in range(self.m):
            there = readers == device
            sent = np.zeros(makers.shape, dtype=np.bool_)
            for crossings, pairs in self._ranks:
                sent[crossings] |= there[pairs]
            sent &= makers != device
            seconds[device] = self.seconds @ sent
        found: Floats = seconds.T
        return found

    def idle(self, genes: Ints) -> Ints:
        """(K,): how many devices have no partition."""
        columns = _columns(genes)
        used: Ints = np.sum([(columns == device).any(0) for device in range(self.m)], axis=0)
        return self.m - used

    def alive(self, genes: Ints) -> Floats:
        """(K, n): how much of a batch's activations a partition holds at once, as a part of one batch.

        GPIPE: all micro-batches run forward before one runs backward. SEQUENTIAL: there is one micro-batch at a time.
        ONE_F_ONE_B: a block, which is a run of partitions on one device, holds one micro-batch for itself and one for
        each block behind it. DELAYED: the same with whole batches.
        """
        rule = self.problem.rule
        if rule == pb.PipelineParameter.SEQUENTIAL:
            return np.full(genes.shape, self.least_alive)
        if rule not in (pb.PipelineParameter.ONE_F_ONE_B, pb.PipelineParameter.DELAYED):
            return np.ones(genes.shape)
        begins = np.zeros(genes.shape, dtype=np.int64)
        begins[:, 1:] = genes[:, 1:] != genes[:, :-1]
        block = np.cumsum(begins, 1)
        behind: Floats = (block[:, -1:] - block + 1).astype(np.float64)
        if rule == pb.PipelineParameter.DELAYED:
            return behind
        return np.minimum(behind / self.problem.micro_batches, 1.0)

    @property
    def least_alive(self) -> float:
        """What a partition holds of its activations at least, wherever it is, as a part of one batch."""
        rules = pb.PipelineParameter.ONE_F_ONE_B, pb.PipelineParameter.SEQUENTIAL
        return 1.0 / self.problem.micro_batches if self.problem.rule in rules else 1.0

    @cached_property
    def most_held(self) -> float:
        """Bytes that no device can need more of, whatever the placement."""
        alive = float(self.alive(np.arange(self.n)[None]).max())
        blobs = self.activations.sum() + self.bytes.sum()
        weights = self.parameters.sum() + (alive - 1) * self.copied.sum() + self.added.max()
        return float(self.source_memory + weights + alive * blobs)

    def held(self, genes: Ints) -> Floats:
        """(K, m): bytes of each device: ``weights`` and ``blobs``."""
        found: Floats = self.weights(genes) + self.blobs(genes)
        return found

    def fills(self, genes: Ints) -> Floats:
        """(K, m): the share that each device's memory is filled by, or just bytes, as ``room`` says."""
        found: Floats = self.held(genes) / self.room
        return found

    def weights(self, genes: Ints) -> Floats:
        """(K, m): bytes of each device's parameters, with all that training keeps for them.

        Under DELAYED a partition keeps a copy of the values for each stage behind it, by which batches under way go
        backward. Where gradients add up, the one that is added needs room once: that of the largest parameter.
        """
        found = self.sums(self.parameters, genes)
        columns = _columns(genes)
        if self.copied.any():
            copies = self.copied[:, None] * (self.alive(genes).T - 1)
            found += np.stack([(copies * (columns == device)).sum(0) for device in range(self.m)], 1)
        if self.added.any():
            found += np.stack([(self.added[:, None] * (columns == device)).max(0) for device in range(self.m)], 1)
        return found

    def blobs(self, genes: Ints) -> Floats:
        """(K, m): bytes of each device's activations alive at once, and of blobs received from others.

        The first partition that reads a blob on a device is the one that keeps it longest.
        """
        columns = _columns(genes)
        alive = self.alive(genes).T
        own = self.activations[:, None] * alive
        held = np.zeros((self.m, len(genes)))
        held[0] = self.source_memory
        readers, longest, makers = columns[self._pair_reader], alive[self._pair_reader], self._makers(columns)
        for device in range(self.m):
            held[device] += np.einsum("nk,nk->k", own, columns == device)
            there = readers == device
            kept = np.zeros(makers.shape)
            for crossings, pairs in reversed(self._ranks):
                kept[crossings] = np.where(there[pairs], longest[pairs], kept[crossings])
            kept *= makers != device
            held[device] += self.bytes @ kept
        found: Floats = held.T
        return found


def _columns(genes: Ints) -> NDArray[np.int16]:
    """(n, K), close together in memory."""
    return np.ascontiguousarray(genes.T, dtype=np.int16)
