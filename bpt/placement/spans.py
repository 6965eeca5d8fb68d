"""What runs of consecutive partitions cost on each device: tables for the dynamic program of BLOCK."""

from __future__ import annotations

import numpy as np

from bpt.placement.loads import Floats, Loads, lacking
from bpt.proto import bpt_pb2 as pb


class SpanCosts:
    """Tables over runs ``[a, b)`` of partitions, 0 ≤ a < b ≤ n; entries of other runs are infinite.

    Device 0 begins at partition 0 and no other device does; the last device ends at n and no other does.

    Attributes:
        slowest: for each device (n + 1, n + 1): seconds in which it computes, or in which messages travel to it, if
            that is more; infinite where the run does not fit into its memory.
        through: the same with the sum of both.
        fills: the same with the share of its memory that the run fills (``Loads.room``).
        excess: bytes that a run needs beyond the device's memory; not negative.
    """

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        n, m = loads.n, loads.m
        seconds = _Rectangles(n)
        size = _Rectangles(n)
        for producer, readers, second, byte in zip(
            loads.producers.tolist(), loads.readers, loads.seconds.tolist(), loads.bytes.tolist(), strict=True
        ):
            # Stage 0 runs the layers without bottoms, so it receives nothing that they make.
            first = max(producer, 0)
            for reader in readers:
                seconds.add(first + 1, reader, reader + 1, n, second)
                size.add(first + 1, reader, reader + 1, n, byte)
                first = reader
        received, taken = seconds.table(), size.table()
        starts, ends = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
        work, parameters, copied = (_over(x) for x in (loads.work, loads.parameters, loads.copied))
        activations, added = _over(loads.activations), _most(loads.added)
        self.slowest: list[Floats] = []
        self.through: list[Floats] = []
        self.fills: list[Floats] = []
        self.excess: list[Floats] = []
        for device in range(m):
            here = (starts < ends) & ((starts == 0) == (device == 0)) & ((ends == n) == (device == m - 1))
            alive = _alive(loads, device)
            held = parameters + added + (alive - 1) * copied + alive * (activations + taken)
            if device == 0:
                held = held + loads.source_memory
            lack = lacking(held, loads.memory[device])
            self.excess.append(np.where(here, lack, np.inf))
            fits = here & (lack == 0)
            working = work / loads.speeds[device]
            self.slowest.append(np.where(fits, np.maximum(working, received), np.inf))
            self.through.append(np.where(fits, working + received, np.inf))
            self.fills.append(np.where(fits, held / loads.room[device], np.inf))


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


def _most(values: Floats) -> Floats:
    """The greatest over each run; 0 of others."""
    found = np.zeros((len(values) + 1, len(values) + 1))
    for start in range(len(values)):
        found[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return found


def _alive(loads: Loads, device: int) -> float:
    """As ``Loads.alive``, for one run a device."""
    behind = float(loads.m - device)
    match loads.problem.rule:
        case pb.PipelineParameter.DELAYED:
            return behind
        case pb.PipelineParameter.ONE_F_ONE_B:
            return min(behind / loads.problem.micro_batches, 1.0)
    return loads.least_alive
