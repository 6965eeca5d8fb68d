"""What runs of consecutive partitions cost on each device: tables for the dynamic program of BLOCK."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

import numpy as np

from bpt.placement.loads import Floats, Loads, lacking
from bpt.proto import bpt_pb2 as pb


class SpanCosts:
    """Tables over runs ``[a, b)`` of partitions, 0 ≤ a < b ≤ n; entries of other runs are infinite.

    Device 0 begins at partition 0 and no other device does; the last device ends at n and no other does.

    Attributes:
        inner: for each device (n + 1, n + 1): seconds of its work and of what it receives; infinite where the run
            does not fit into its memory.
        floors: the same with what it sends, each blob to one device only: never more than the true cost.
        excess: bytes that a run needs beyond the device's memory; not negative.
    """

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        n, m = loads.n, loads.m
        seconds = _Rectangles(n)
        size = _Rectangles(n)
        sends = _Rectangles(n)
        for producer, readers, second, byte in zip(
            loads.producers.tolist(), loads.readers, loads.seconds.tolist(), loads.bytes.tolist(), strict=True
        ):
            # Stage 0 runs the layers without bottoms, so it receives nothing that they make.
            first = max(producer, 0)
            for reader in readers:
                seconds.add(first + 1, reader, reader + 1, n, second)
                size.add(first + 1, reader, reader + 1, n, byte)
                first = reader
            sends.add(0, max(producer, 0), max(producer, 0) + 1, readers[-1], second)
        received, taken, sent = seconds.table(), size.table(), sends.table()
        starts, ends = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
        work, parameters, activations = (_over(x) for x in (loads.work, loads.parameters, loads.activations))
        self.inner: list[Floats] = []
        self.floors: list[Floats] = []
        self.excess: list[Floats] = []
        for device in range(m):
            here = (starts < ends) & ((starts == 0) == (device == 0)) & ((ends == n) == (device == m - 1))
            held = parameters + _alive(loads, device) * (activations + taken)
            if device == 0:
                held = held + loads.source_memory
            lack = lacking(held, loads.memory[device])
            self.excess.append(np.where(here, lack, np.inf))
            inner = np.where(here & (lack == 0), work / loads.speeds[device] + received, np.inf)
            self.inner.append(inner)
            self.floors.append(inner + sent)

    @cached_property
    def _made_by(self) -> list[list[int]]:
        """The crossings that each partition makes; those of layers without bottoms last."""
        found: list[list[int]] = [[] for _ in range(self.loads.n + 1)]
        for crossing, producer in enumerate(self.loads.producers.tolist()):
            found[producer].append(crossing)
        return found

    @cached_property
    def _read_by(self) -> list[list[int]]:
        """The crossings that each partition reads."""
        found: list[list[int]] = [[] for _ in range(self.loads.n)]
        for crossing, readers in enumerate(self.loads.readers):
            for reader in readers:
                found[reader].append(crossing)
        return found

    def made(self, device: int, start: int, end: int) -> set[int]:
        """The crossings that a device makes if it runs ``[start, end)``."""
        made = [self._made_by[partition] for partition in range(start, end)]
        return set(chain.from_iterable(made if device else [self._made_by[-1], *made]))

    def read(self, device: int, start: int, end: int) -> set[int]:
        """The crossings that a device receives if it runs ``[start, end)``."""
        if not device:
            return set()  # it makes what layers without bottoms make, and is the first
        producers = self.loads.producers
        read = chain.from_iterable(self._read_by[partition] for partition in range(start, end))
        return {crossing for crossing in read if producers[crossing] < start}


class _Rectangles:
    """Sums of constants over rectangles of a table, by differences."""

    def __init__(self, n: int) -> None:
        self.differences = np.zeros((n + 2, n + 2))

    def add(self, top: int, bottom: int, left: int, right: int, value: float) -> None:
        """Add to rows ``top .. bottom`` and columns ``left .. right``, both ends included."""
        if top <= bottom and left <= right:
            self.differences[top, left] += value
            self.differences[bottom + 1, left] -= value
            self.differences[top, right + 1] -= value
            self.differences[bottom + 1, right + 1] += value

    def table(self) -> Floats:
        sums: Floats = np.maximum(self.differences.cumsum(0).cumsum(1)[:-1, :-1], 0.0)
        return sums


def _over(values: Floats) -> Floats:
    """The sum over each run."""
    ends = np.concatenate([[0.0], values.cumsum()])
    sums: Floats = ends[None, :] - ends[:, None]
    return sums


def _alive(loads: Loads, device: int) -> float:
    """As ``Loads.alive``, for one run a device."""
    behind = float(loads.m - device)
    match loads.problem.rule:
        case pb.PipelineParameter.DELAYED:
            return behind
        case pb.PipelineParameter.ONE_F_ONE_B:
            return min(behind / loads.problem.micro_batches, 1.0)
    return 1.0
