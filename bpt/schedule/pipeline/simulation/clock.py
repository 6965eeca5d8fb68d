"""Plays the instructions of a pipeline's stages on a virtual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bpt.schedule.instructions import Backward, Exchange, Forward, Instruction, Recv, Send, Update, Wait
from bpt.schedule.pipeline.simulation.channel import Network
from bpt.schedule.pipeline.simulation.deadlock import explain
from bpt.schedule.pipeline.simulation.times import Times
from bpt.schedule.pipeline.simulation.trace import COMPUTE, EXCHANGE, Event, Trace


def simulate(streams: Sequence[Sequence[Instruction]], times: Times) -> Trace:
    """Play one or several iterations, a stream a stage, from time 0 on.

    Each stage does one instruction after the other. A message does not hold its sender up: it passes the link to its
    reader behind those sent before it, and ``Recv`` waits for it. Messages of one flow and direction are received in
    the order in which they were sent, as a communicator delivers them. Exchanges of a stage go on beside its work, one
    after the other, and ``Wait`` waits for them. Draws and broadcasts take no time.

    Args:
        streams: of stage 0, 1, …; of several iterations one behind the other.

    Raises:
        DeadlockError: no stage can go on.
    """
    network = Network(streams)
    stages = [_Stage(number, stream, times, network) for number, stream in enumerate(streams)]
    # Time is each stage's own, so the order of turns does not matter.
    while any(stage.run() for stage in stages):
        pass
    if not all(stage.ended for stage in stages):
        raise explain(streams, [stage.step for stage in stages], network)
    updates = [stage.updates for stage in stages]
    return Trace(
        events=tuple(sorted((event for stage in stages for event in stage.events), key=lambda event: event.start)),
        ends=tuple(stage.now for stage in stages),
        busy=tuple(stage.busy for stage in stages),
        waiting=tuple(stage.waiting for stage in stages),
        peaks={segment: peak for stage in stages for segment, peak in sorted(stage.peaks.items())},
        steps=_steps(updates),
        left=tuple(map(str, network.left())),
    )


def _steps(updates: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """When the slowest stage had done each update. A stage with fewer of them has missed the first ones (DELAYED)."""
    count = max(map(len, updates), default=0)
    return tuple(max(its[-back] for its in updates if back <= len(its)) for back in range(count, 0, -1))


class _Stage:
    """A stage with its own clock."""

    def __init__(self, number: int, stream: Sequence[Instruction], times: Times, network: Network) -> None:
        self.step = 0
        self.now = 0.0
        self.busy = 0.0
        self.waiting = 0.0
        self.events: list[Event] = []
        self.peaks: dict[int, int] = {}
        self.updates: list[float] = []
        self._number = number
        self._stream = stream
        self._times = times
        self._network = network
        self._exchanged = 0.0  # when the last exchange that was started is done
        self._in_flight: Counter[int] = Counter()

    @property
    def ended(self) -> bool:
        return self.step == len(self._stream)

    def run(self) -> bool:
        """Go on until the end, or until a message is not sent yet; whether anything was done."""
        start = self.step
        while not self.ended and self._do(self._stream[self.step]):
            self.step += 1
        return self.step > start

    def _do(self, instruction: Instruction) -> bool:
        """Whether the instruction could be done."""
        if isinstance(instruction, Recv):
            arrival = self._network.receive(instruction)
            if arrival is None:
                return False
            self._wait_until(arrival)
        elif isinstance(instruction, Send):
            self._send(instruction)
        elif isinstance(instruction, Forward):
            self._compute(instruction, self._times.forward(self._number, instruction.segment))
            self._in_flight[instruction.segment] += 1
            count = self._in_flight[instruction.segment]
            self.peaks[instruction.segment] = max(self.peaks.get(instruction.segment, 0), count)
        elif isinstance(instruction, Backward):
            self._compute(instruction, self._times.backward(self._number, instruction.segment))
            self._in_flight[instruction.segment] -= 1
        elif isinstance(instruction, Exchange):
            start = max(self.now, self._exchanged)
            self._exchanged = start + self._times.exchange(self._number, instruction.segment)
            self._note(EXCHANGE, instruction, start, self._exchanged)
        elif isinstance(instruction, Wait):
            self._wait_until(self._exchanged)
        elif isinstance(instruction, Update):
            self._compute(instruction, self._times.update(self._number))
            self.updates.append(self.now)
        return True

    def _send(self, send: Send) -> None:
        seconds = self._times.transfer(send.transfer, send.diff)
        start, end = self._network.send(self._number, send, self.now, seconds)
        self._note(f"to {self._network.reader(send)}", send, start, end)

    def _compute(self, instruction: Instruction, seconds: float) -> None:
        self._note(COMPUTE, instruction, self.now, self.now + seconds)
        self.now += seconds
        self.busy += seconds

    def _wait_until(self, moment: float) -> None:
        self.waiting += max(moment - self.now, 0.0)
        self.now = max(moment, self.now)

    def _note(self, stream: str, instruction: Instruction, start: float, end: float) -> None:
        self.events.append(Event(self._number, stream, str(instruction), start, end))
