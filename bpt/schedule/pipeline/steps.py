"""The instructions around a segment's forward and backward: what it must have got, and what it sends on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from bpt.schedule.instructions import Backward, Draw, Exchange, Forward, Instruction, Recv, Send
from bpt.schedule.pipeline.model import Flow, Pipeline


class Steps:
    """Yields the instructions of a pipeline's tasks, with the messages that belong to them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._overlap = pipeline.overlap
        self._into: defaultdict[int, list[Flow]] = defaultdict(list)
        self._out_of: defaultdict[int | None, list[Flow]] = defaultdict(list)
        for flow in sorted(pipeline.flows, key=lambda flow: flow.index):
            self._into[flow.target].append(flow)
            self._out_of[flow.source].append(flow)

    def draw(self, micros: range) -> Iterator[Instruction]:
        """A batch is drawn, and its parts are sent to the other stages that read it."""
        yield Draw(micros.start)
        for micro in micros:
            yield from (Send(flow.index, micro) for flow in self._out_of[None])

    def forward(self, segments: Iterable[int], micro: int) -> Iterator[Instruction]:
        """Segments run forward, from the bottom up."""
        for segment in segments:
            yield from (Recv(flow.index, micro) for flow in self._into[segment])
            yield Forward(segment, micro)
            yield from (Send(flow.index, micro) for flow in self._out_of[segment])

    def backward(self, segments: range, micro: int, last: bool) -> Iterator[Instruction]:
        """Segments run backward, from the top down.

        Args:
            last: this is their last micro-batch, after which their gradients may be exchanged.
        """
        for segment in reversed(segments):
            yield from (Recv(flow.index, micro, diff=True) for flow in self._out_of[segment] if flow.diff)
            yield Backward(segment, micro)
            yield from (Send(flow.index, micro, diff=True) for flow in self._into[segment] if flow.diff)
            if last and self._overlap:
                yield Exchange(segment)

    def exchange(self, segments: Iterable[int]) -> Iterator[Instruction]:
        """The exchanges that follow all backward passes, where they do not overlap."""
        if not self._overlap:
            yield from map(Exchange, sorted(segments, reverse=True))
