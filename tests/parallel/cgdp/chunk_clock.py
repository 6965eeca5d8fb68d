"""A virtual clock for the cost model: plays an iteration on synthetic devices (CGDP, sections 3.1 and 3.2).

Only backward and exchange take time, as in the paper's cost model; forward, update and broadcast take none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bpt.engine.instructions import Backward, Broadcast, ExchangeGradients, Forward, Instruction, UpdateWeights, Wait
from bpt.parallel.cgdp.cost_model import ChunkCosts, TrainedLayerCost

DEFAULT, D2H, HOST, NETWORK, H2D = "default", "D2H", "host", "network", "H2D"  # streams, each first in, first out
EXCHANGE = (D2H, HOST, NETWORK, H2D)  # in the order of LayerCost.stages


class SimulatedEvent(NamedTuple):
    """The work of one stream of a rank from ``start`` to ``end`` (seconds).

    Labels begin with the instruction: ``X2 D2H``.
    """

    rank: int
    stream: str
    label: str
    start: float
    end: float


@dataclass
class SimulatedTrace:
    """The work of all streams, in the order in which it was issued.

    Attributes:
        events: those that took time, and every Wait.
        ends: for each rank, when its Wait ended: its T.
        exposed: for each rank, what it spent neither in backward nor in synchronisation until then: the exchange that
            is not hidden, and waiting for slower ranks. If the streams overlap, this is how long Wait took.
    """

    events: list[SimulatedEvent] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """T of the slowest rank."""
        return max(self.ends, default=0.0)


def simulate(
    instructions: Iterable[Instruction],
    ranks: Sequence[ChunkCosts],
    lengths: Sequence[int],
    hosts: Sequence[int] | None = None,
    one_stream: bool = False,
) -> SimulatedTrace:
    """Play ``instructions`` on every rank from time 0 on.

    ``Backward(s)`` takes t_bp of its chunk on the default stream. ``ExchangeGradients(s)`` takes t_as there and then
    queues up: for the copy to the host (D2H stream); for the accumulation, which needs the copies of all ranks of the
    host; for the reduction, which needs the sums of all hosts; and for the way back (H2D stream), which needs all
    slices of the result. ``Wait`` ends when the rank's last copy is back.

    Args:
        instructions: of one iteration, the same for all ranks; segment 0 is the lowest chunk.
        ranks: the costs for each rank; they differ in time if ranks are not equally fast.
        lengths: the chunks, from the top layer down.
        hosts: the number of each rank's host; all on one by default.
        one_stream: the exchange runs on the default stream, too, and needs no synchronisation, as in OrigDP.
    """
    hosts = [0] * len(ranks) if hosts is None else hosts
    assert ranks and len(hosts) == len(ranks), (ranks, hosts)
    return _Clock(ranks, lengths, hosts, one_stream).play(instructions)


class _Clock:
    """Tracks until when each stream of each rank is busy.

    Ranks issue the same instructions in the same order, so each can be played on all of them before the next one.
    """

    def __init__(
        self, ranks: Sequence[ChunkCosts], lengths: Sequence[int], hosts: Sequence[int], one_stream: bool
    ) -> None:
        # By segment: number 0 is the lowest chunk, while chunks begin with the top one.
        self._chunks = [list(costs.chunked(lengths))[::-1] for costs in ranks]
        self._costs = ranks
        self._hosts = hosts
        self._one_stream = one_stream
        self._busy: dict[tuple[int, str], float] = {}
        self._computed = [0.0] * len(ranks)  # time in backward and synchronisation
        self._trace = SimulatedTrace()
        self._handlers: Mapping[type[Instruction], Callable[[Any], None]] = {
            **dict.fromkeys((Broadcast, Forward, UpdateWeights), self._take_no_time),
            Backward: self._backward,
            ExchangeGradients: self._exchange,
            Wait: self._wait,
        }

    def play(self, instructions: Iterable[Instruction]) -> SimulatedTrace:
        for instruction in instructions:
            self._handlers[type(instruction)](instruction)
        return self._trace

    def _take_no_time(self, instruction: Instruction) -> None:
        """Do nothing: the model leaves this instruction out."""

    def _backward(self, instruction: Backward) -> None:
        for rank, chunk in enumerate(self._of(instruction.segment)):
            self._compute(rank, str(instruction), chunk.bp)

    def _of(self, segment: int) -> list[TrainedLayerCost]:
        """Return the chunk of each rank."""
        return [chunks[segment] for chunks in self._chunks]

    def _exchange(self, instruction: ExchangeGradients) -> None:
        chunks = self._of(instruction.segment)
        if not self._one_stream:
            for rank, chunk in enumerate(chunks):
                self._compute(rank, f"{instruction} as", self._costs[rank].as_(chunk.elements))
        ready = [self._busy.get((rank, DEFAULT), 0.0) for rank in range(len(chunks))]
        for stage, stream in enumerate(EXCHANGE):
            if stream == HOST:
                ready = [max(self._on_host(ready, host)) for host in self._hosts]
            elif stream in (NETWORK, H2D):
                ready = [max(ready)] * len(ready)
            on = DEFAULT if self._one_stream else stream
            ready = [
                self._run(rank, on, f"{instruction} {stream}", after, chunk.stages[stage])
                for rank, (after, chunk) in enumerate(zip(ready, chunks, strict=True))
            ]

    def _on_host(self, times: Sequence[float], host: int) -> list[float]:
        return [time for time, its in zip(times, self._hosts, strict=True) if its == host]

    def _wait(self, instruction: Wait) -> None:
        for rank, computed in enumerate(self._computed):
            start = self._busy.get((rank, DEFAULT), 0.0)
            end = max(start, self._busy.get((rank, H2D), 0.0))
            self._busy[rank, DEFAULT] = end
            self._trace.events.append(SimulatedEvent(rank, DEFAULT, str(instruction), start, end))
            self._trace.ends.append(end)
            self._trace.exposed.append(end - computed)

    def _compute(self, rank: int, label: str, seconds: float) -> None:
        self._run(rank, DEFAULT, label, 0.0, seconds)
        self._computed[rank] += seconds

    def _run(self, rank: int, stream: str, label: str, after: float, seconds: float) -> float:
        """Queue work that can begin at ``after``; return when it ends."""
        start = max(after, self._busy.get((rank, stream), 0.0))
        end = self._busy[rank, stream] = start + seconds
        if seconds:
            self._trace.events.append(SimulatedEvent(rank, stream, label, start, end))
        return end
