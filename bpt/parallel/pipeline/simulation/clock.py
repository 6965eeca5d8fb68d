"""Plays the instructions of a pipeline's stages on a virtual clock, and tells why a pipeline stands still.

Messages between stages have channels, in which they keep their order, and links, on which they take their time.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bpt.engine.instructions import (
    Backward,
    BackwardInputs,
    BackwardWeights,
    Broadcast,
    ExchangeGradients,
    Forward,
    ForwardBackward,
    Instruction,
    LoadBatch,
    PostRecv,
    Recv,
    ReleaseBatch,
    Send,
    UpdateWeights,
    Wait,
)
from bpt.parallel.discrete_event import Later, Resource, SteppedProcess, run_all
from bpt.parallel.pipeline.simulation.trace import COMPUTE, EXCHANGE, PipelineTimes, PipelineTrace, StageEvent

Handler = Callable[[Any], bool | None]
"""Does an instruction; ``False``: it cannot be done yet."""


class DeadlockError(ValueError):
    """An error: no stage can continue, and some have not reached their ends; it says who waits for what."""


def explain(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network) -> DeadlockError:
    """Return the error for stages that stopped before their instructions ``steps``."""
    stages = (_describe(streams, steps, network, stage) for stage in range(len(streams)))
    return DeadlockError(f"deadlock: {'; '.join(stages)}")


def _describe(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network, stage: int) -> str:
    step, stream = steps[stage], streams[stage]
    if step == len(stream):
        return f"stage {stage} has done all of its {step} instructions"
    awaited = stream[step]
    assert isinstance(awaited, Recv), awaited  # nothing else can stop a stage
    what = f"the {'diff' if awaited.diff else 'values'} of flow {awaited.transfer}, micro-batch {awaited.micro}"
    cause = _cause(streams, steps, network, awaited)
    return f"stage {stage} waits at {awaited} (instruction {step}) for {what}, {cause}"


def _cause(streams: Sequence[Sequence[Instruction]], steps: Sequence[int], network: Network, awaited: Recv) -> str:
    ahead = network.next(awaited)
    if ahead is not None:
        return f"but {ahead} was sent before it and is not received yet"
    wanted = Send(awaited.transfer, awaited.micro, awaited.diff)
    for stage, stream in enumerate(streams):
        if wanted in stream[steps[stage] :]:
            return f"which stage {stage} sends later (instruction {stream.index(wanted, steps[stage])})"
    return "which no stage is going to send"


class Channel(NamedTuple):
    """The key by which a communicator distinguishes messages of two ranks: the flow, and whether it is the diff."""

    flow: int
    diff: bool


class Message(NamedTuple):
    """A message that arrives at ``arrival`` (seconds)."""

    send: Send
    arrival: float


def channel_of(message: Send | Recv) -> Channel:
    """Return the channel of a message."""
    return Channel(message.transfer, message.diff)


class Network:
    """All messages on their way.

    A message starts when it is sent and the one before it on its link has passed; each pair of stages has a link in
    each direction. A channel is first in, first out, as a communicator's messages of one tag are.
    """

    def __init__(self, streams: Sequence[Sequence[Instruction]], later: Later = max) -> None:
        self._readers = _ends(streams, Recv)
        writers = _ends(streams, Send)
        for channel in self._readers.keys() & writers.keys():
            assert self._readers[channel] != writers[channel], f"stage {writers[channel]} sends {channel} to itself"
        self._links: defaultdict[tuple[int, int | None], Resource] = defaultdict(lambda: Resource(later))
        self._queues: defaultdict[Channel, deque[Message]] = defaultdict(deque)

    def reader(self, send: Send) -> int | None:
        """Return the stage that receives such messages; ``None`` if none does."""
        return self._readers.get(channel_of(send))

    def send(self, stage: int, send: Send, now: float, seconds: float, latency: float) -> tuple[float, float]:
        """Send a message that takes ``seconds`` and ``latency``; return when it starts, and when it arrives."""
        link = self._links[stage, self.reader(send)]
        start = link.serve(now, seconds)
        arrival = link.free + latency
        self._queues[channel_of(send)].append(Message(send, arrival))
        return start, arrival

    def receive(self, recv: Recv) -> float | None:
        """Return when the message arrives; ``None`` if it is not sent yet, or not the next of its channel."""
        queue = self._queues[channel_of(recv)]
        if not queue or queue[0].send.micro != recv.micro:
            return None
        return queue.popleft().arrival

    def next(self, recv: Recv) -> Send | None:
        """Return the sent message that must be received first."""
        queue = self._queues[channel_of(recv)]
        return queue[0].send if queue else None

    def left(self) -> Iterable[Send]:
        """Return the messages that are sent and not received."""
        return (message.send for channel in sorted(self._queues) for message in self._queues[channel])


def _ends(streams: Sequence[Sequence[Instruction]], kind: type[Send] | type[Recv]) -> dict[Channel, int]:
    """Return the stage at this end of each channel."""
    ends: dict[Channel, int] = {}
    for stage, stream in enumerate(streams):
        for instruction in stream:
            if isinstance(instruction, kind):
                end = ends.setdefault(channel_of(instruction), stage)
                assert end == stage, f"stages {end} and {stage} are at the same end of {channel_of(instruction)}"
    return ends


def simulate(streams: Sequence[Sequence[Instruction]], times: PipelineTimes) -> PipelineTrace:
    """Play one or several iterations, with one stream a stage, from time 0 on.

    Each stage does one instruction after the other. A message does not hold its sender up: it passes the link to its
    reader behind those sent before it, and ``Recv`` waits for it. Messages of one flow and direction are received in
    the order in which they were sent, as a communicator delivers them. Exchanges of a stage run beside its work, one
    after the other, and ``Wait`` waits for them. Draws and broadcasts take no time.

    Args:
        streams: of stage 0, 1, …; of several iterations one behind the other.

    Raises:
        DeadlockError: no stage can continue.
    """
    stages, network = play(streams, times)
    updates = [stage.updates for stage in stages]
    return PipelineTrace(
        events=tuple(sorted((event for stage in stages for event in stage.events), key=lambda event: event.start)),
        ends=tuple(stage.now for stage in stages),
        busy=tuple(stage.busy for stage in stages),
        waiting=tuple(stage.waiting for stage in stages),
        peaks={segment: peak for stage in stages for segment, peak in sorted(stage.peaks.items())},
        steps=_steps(updates),
        left=tuple(map(str, network.left())),
    )


def play(
    streams: Sequence[Sequence[Instruction]], times: Any, later: Later = max
) -> tuple[Sequence[PlayedStage], Network]:
    """Return what each stage has done at the end, and the messages on their way, as for ``simulate``.

    Args:
        times: as Times has them, or arrays of those of many pipelines; then ``later`` takes arrays, too.

    Raises:
        DeadlockError: no stage can continue.
    """
    network = Network(streams, later)
    stages = [PlayedStage(number, stream, times, network, later) for number, stream in enumerate(streams)]
    if not run_all(stages):
        raise explain(streams, [stage.step for stage in stages], network)
    return stages, network


def _steps(updates: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return when the slowest stage had done each update."""
    return tuple(map(max, zip(*updates, strict=True)))


class PlayedStage(SteppedProcess):
    """A stage that does its instructions on the virtual clock.

    Attributes:
        events: its work, in the order in which it was issued.
        peaks: the largest number of micro-batches in flight in each segment, as of PipelineTrace.
        updates: the moments at which updates were done.
        waited: for each Wait, the moment from which it waited for exchanges.
    """

    def __init__(self, number: int, stream: Sequence[Instruction], times: Any, network: Network, later: Later) -> None:
        super().__init__(stream, later)
        self.events: list[StageEvent] = []
        self.peaks: dict[int, int] = {}
        self.updates: list[float] = []
        self.waited: list[float] = []
        self._number = number
        self._times = times
        self._network = network
        self._exchanges = Resource(later)
        self._in_flight: Counter[int] = Counter()
        self._has_gradients = False
        self._handlers: Mapping[type[Instruction], Handler] = {
            **dict.fromkeys((Broadcast, LoadBatch, PostRecv, ReleaseBatch), self._take_no_time),
            Forward: self._forward,
            Backward: self._backward,
            BackwardInputs: self._backward_inputs,
            BackwardWeights: self._backward_weights,
            ForwardBackward: self._both,
            Send: self._send,
            Recv: self._receive,
            ExchangeGradients: self._exchange,
            Wait: self._wait,
            UpdateWeights: self._update,
        }

    def do(self, step: Instruction) -> bool:
        return self._handlers[type(step)](step) is not False

    def _take_no_time(self, instruction: Instruction) -> None:
        """Do nothing: the model leaves this instruction out."""

    def _receive(self, recv: Recv) -> bool:
        arrival = self._network.receive(recv)
        if arrival is not None:
            self.wait_until(arrival)
        return arrival is not None

    def _forward(self, forward: Forward) -> None:
        self._compute(forward, self._times.forward(self._number, forward.segment))
        self._in_flight[forward.segment] += 1
        count = self._in_flight[forward.segment]
        self.peaks[forward.segment] = max(self.peaks.get(forward.segment, 0), count)

    def _backward(self, backward: Backward) -> None:
        self._compute(backward, self._times.backward(self._number, backward.segment))
        self._end_micro_batch(backward.segment)

    def _backward_inputs(self, backward: BackwardInputs) -> None:
        stage, segment = self._number, backward.segment
        self._compute(backward, self._times.backward(stage, segment) - self._times.weights(stage, segment))

    def _backward_weights(self, backward: BackwardWeights) -> None:
        self._compute(backward, self._times.weights(self._number, backward.segment))
        self._end_micro_batch(backward.segment)

    def _end_micro_batch(self, segment: int) -> None:
        self._in_flight[segment] -= 1
        self._has_gradients = True

    def _both(self, both: ForwardBackward) -> None:
        self._forward(Forward(both.segment))
        self._backward(Backward(both.segment))

    def _exchange(self, exchange: ExchangeGradients) -> None:
        start = self._exchanges.serve(self.now, self._times.exchange(self._number, exchange.segment))
        self._note(EXCHANGE, exchange, start, self._exchanges.free)

    def _wait(self, wait: Wait) -> None:
        self.waited.append(self.now)
        self.wait_until(self._exchanges.free)

    def _update(self, update: UpdateWeights) -> None:
        if self._has_gradients:
            self._compute(update, self._times.update(self._number))
        self._has_gradients = False
        self.updates.append(self.now)

    def _send(self, send: Send) -> None:
        seconds, latency = self._times.transfer(send.transfer, send.diff), self._times.latency(send.transfer, send.diff)
        start, end = self._network.send(self._number, send, self.now, seconds, latency)
        self._note(f"to {self._network.reader(send)}", send, start, end)

    def _compute(self, instruction: Instruction, seconds: float) -> None:
        start = self.now
        self.work(seconds)
        self._note(COMPUTE, instruction, start, self.now)

    def _note(self, stream: str, instruction: Instruction, start: float, end: float) -> None:
        self.events.append(StageEvent(self._number, stream, instruction, start, end))
