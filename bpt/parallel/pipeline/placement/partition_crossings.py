"""The blobs that partitions read from each other, as arrays: for many placements at once."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from bpt.parallel.pipeline.placement.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = NDArray[np.int16]
"""(n, K) the device of each partition in each of K placements, in contiguous memory."""


class PartitionCrossings:
    """The crossings between the partitions of a problem.

    Args:
        part: the partition of each layer.
        sources: the layers without bottoms, which run on stage 0.

    Attributes:
        producers: (C,) the partition that makes each crossing; -1: a layer without bottoms, on stage 0.
        readers: for each crossing the partitions that read it, ascending, without the producer.
        seconds: (C,) the seconds in which it travels to one device, and its diff back.
        bytes: (C,) the bytes that it takes on a device that reads it.
        pair_reader: (P,) the reader of each pair of a crossing and a reader; pairs of one crossing are neighbours.
        pair_seconds, pair_bytes: (P,) the same as seconds and bytes.
    """

    def __init__(self, problem: Problem, part: NDArray[np.intp], sources: Set[int]) -> None:
        merged = _merge(problem, part, sources)
        self.producers = np.array([producer for producer, _ in merged], dtype=np.int64)
        self.readers = tuple(readers for _, readers in merged)
        self.seconds = np.array([total[0] for total in merged.values()])
        self.bytes = np.array([total[1] for total in merged.values()])
        of = np.repeat(np.arange(len(merged)), [len(readers) for readers in self.readers])
        rank = np.array([place for readers in self.readers for place in range(len(readers))], dtype=np.int64)
        self.pair_reader = np.array([reader for readers in self.readers for reader in readers], dtype=np.int64)
        self.pair_seconds, self.pair_bytes = self.seconds[of], self.bytes[of]
        self._pair_producer = self.producers[of]
        self._from_source = np.flatnonzero(self._pair_producer < 0)
        self._later = [np.flatnonzero(rank >= distance) for distance in range(1, rank.max(initial=0) + 1)]

    def sent(self, columns: Columns) -> tuple[Columns, NDArray[np.bool_]]:
        """Return (P, K) for each pair: the reader's device, and whether the crossing is sent for it.

        It is sent if the device is not the producer's, and no earlier reader is on it.
        """
        readers, producers = columns[self.pair_reader], columns[self._pair_producer]
        producers[self._from_source] = 0
        sent: NDArray[np.bool_] = readers != producers
        for distance, pairs in enumerate(self._later, 1):
            sent[pairs] &= readers[pairs] != readers[pairs - distance]
        return readers, sent


def _merge(
    problem: Problem, part: NDArray[np.intp], sources: Set[int]
) -> Mapping[tuple[int, tuple[int, ...]], list[float]]:
    """Return the seconds and bytes of crossings by their producer and their readers."""
    merged: dict[tuple[int, tuple[int, ...]], list[float]] = {}
    for crossing in problem.crossings:
        producer = -1 if crossing.producer in sources else int(part[crossing.producer])
        readers = tuple(sorted({int(part[layer]) for layer in crossing.readers} - {producer}))
        if readers:
            total = merged.setdefault((producer, readers), [0.0, 0.0])
            total[0] += problem.link.seconds(crossing.bytes, problem.micro_batches) * (1 + crossing.diff)
            total[1] += crossing.bytes
    return merged
