"""Lower bound on the time of an iteration of a pipeline.

The bound follows the first and the last micro-batch through the segments, forward and backward. A segment starts when
its inputs have arrived and its stage has done the work before it. The bound leaves out effects that can only delay a
segment: other blobs on a link, and the order in which a stage takes micro-batches. For a single stage the bound is
exact.

It takes a hundredth of the time of simulating all micro-batches on the clock, so a search computes it first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline import Pipeline
from bpt.perf.forecast.data_rank_times import DataRankTimes
from bpt.perf.forecast.rank_links import Floats

_Pipeline = pb.PipelineParameter
_Reads = defaultdict[int, list[tuple[int | None, Floats, Floats]]]


@dataclass(frozen=True)
class EarliestTimes:
    """Lower bounds in seconds from the start of an iteration, with an element for each data-parallel rank.

    Attributes:
        ready: end of the last backward pass of each stage.
        issued: for each stage, its segments from the top down, each with the end of its last backward pass.
    """

    ready: tuple[Floats, ...]
    issued: tuple[tuple[tuple[int, Floats], ...], ...]

    def delayed(self, seconds: Floats) -> EarliestTimes:
        """Return these times, later by ``seconds``."""
        issued = (tuple((number, moment + seconds) for number, moment in own) for own in self.issued)
        return EarliestTimes(tuple(moment + seconds for moment in self.ready), tuple(issued))


def lower_bound(pipeline: Pipeline, rule: int, times: DataRankTimes) -> EarliestTimes:
    """Return the earliest times of an iteration of a pipeline, by any rule except DELAYED.

    Args:
        pipeline: the stages. One stage without micro-batches counts as GPIPE.
        rule: a value of the schema's ``PipelineParameter``.
    """
    flushes = rule == _Pipeline.GPIPE  # a stage ends a pass before it begins the next one
    pass_bound = _PassBound(pipeline, pipeline.micro_batches if flushes else pipeline.micros, flushes, rule, times)
    found = pass_bound.after([0.0] * pipeline.depth)
    if not flushes or pipeline.passes == 1:
        return found
    first, found = found, pass_bound.after(found.ready)
    # A delay at the end of each stage delays all of the next pass by at least as much.
    later = np.min([two - one for one, two in zip(first.ready, found.ready, strict=True)], axis=0)
    return found.delayed((pipeline.passes - 2) * later)


class _PassBound:
    """The earliest times of a pass, or of all passes if stages do not wait for the end of one.

    Args:
        flushes: whether stages wait for the end of a pass.
        rule: the schedule. Under ZERO_BUBBLE diffs of inputs travel before the gradients of weights are computed.
    """

    def __init__(self, pipeline: Pipeline, micros: int, flushes: bool, rule: int, times: DataRankTimes) -> None:
        self._pipeline, self._micros, self._flushes = pipeline, micros, flushes
        stages = pipeline.stages
        self._forward = [times.forward(stage, number) for number, stage in enumerate(stages)]
        in_two = rule == _Pipeline.ZERO_BUBBLE
        self._later = [times.weights(stage, number) * in_two for number, stage in enumerate(stages)]
        self._backward = [times.backward(stage, number) - self._later[number] for number, stage in enumerate(stages)]
        # Segment → the segments of other stages whose blobs, or diffs, it reads (``None``: the data), with the seconds
        # of the message on the link, and its latency.
        self._values: _Reads = defaultdict(list)
        self._diffs: _Reads = defaultdict(list)
        for flow in pipeline.flows:
            self._values[flow.target].append((flow.source, *_of_message(times, flow.index, False)))
            if flow.diff and flow.source is not None:
                self._diffs[flow.source].append((flow.target, *_of_message(times, flow.index, True)))

    def after(self, begin: Sequence[Floats | float]) -> EarliestTimes:
        """Return the times if stages begin at these moments."""
        stages, depth = self._pipeline.stages, self._pipeline.depth
        forward = _PassDirection(self._pipeline, self._micros, self._forward, self._values)
        forward.follow(range(len(stages)), [(moment, moment) for moment in begin])
        tops = {stage: number for number, stage in enumerate(stages)}
        ends = [(forward.first[tops[stage]], forward.last[tops[stage]]) for stage in range(depth)]
        backward = _PassDirection(self._pipeline, self._micros, self._backward, self._diffs)
        # A stage has done all of its forward work when the last micro-batch comes back.
        backward.begun, backward.work = dict(forward.begun), dict(forward.work)
        down = range(len(stages) - 1, -1, -1)
        backward.follow(down, [(last if self._flushes else first, last) for first, last in ends])
        issued: list[list[tuple[int, Floats]]] = [[] for _ in range(depth)]
        for number in down:
            issued[stages[number]].append((number, backward.last[number] + self._later[number]))
        # A stage also computes the gradients of weights, of all micro-batches, and of the last one at the end.
        weights: list[Floats | float] = [0.0] * depth
        for number, stage in enumerate(stages):
            weights[stage] = weights[stage] + self._micros * self._later[number]
        ready = [
            np.maximum(own[-1][1], backward.begun[stage] + backward.work[stage] + weights[stage])
            for stage, own in enumerate(issued)
        ]
        return EarliestTimes(tuple(ready), tuple(map(tuple, issued)))


def _of_message(times: DataRankTimes, flow: int, diff: bool) -> tuple[Floats, Floats]:
    return times.transfer(flow, diff), times.latency(flow, diff)


class _PassDirection:
    """One direction of a pass: the segments in the order in which micro-batches go through them.

    Args:
        seconds: seconds of each segment for one micro-batch, or for all if it gathers them.
        reads: the inputs for which each segment waits.

    Attributes:
        first, last: moments at which the first and the last micro-batch have left each segment.
        begun: moment at which each stage begins.
        work: seconds that each stage computes.
    """

    def __init__(self, pipeline: Pipeline, micros: int, seconds: Sequence[Floats], reads: _Reads) -> None:
        self._pipeline = pipeline
        self._micros = micros
        self._seconds = seconds
        self._reads = reads
        self.first: dict[int, Floats] = {}
        self.last: dict[int, Floats] = {}
        self.begun: dict[int, Floats] = {}
        self.work: dict[int, Floats] = {}
        self._of_block = [sum(seconds[number] for number in block.segments) for block in pipeline.blocks]

    def follow(self, order: Sequence[int], begin: Sequence[tuple[Floats | float, Floats | float]]) -> None:
        """Follow both micro-batches.

        Args:
            order: the segments in this direction.
            begin: moments at which the first and the last micro-batch may begin, for each stage.
        """
        pipeline, before = self._pipeline, list(begin)
        end = -1 if order[0] == 0 else 0  # index of a block's last segment in this direction
        for number in order:
            stage, block, seconds = pipeline.stages[number], pipeline.block_of[number], self._seconds[number]
            first, last = before[stage]
            for read, message, latency in self._reads[number]:
                one, all_of_them = (0.0, 0.0) if read is None else (self.first[read], self.last[read])
                first = np.maximum(first, one + message + latency)
                # A link takes one message after the other.
                through = np.maximum(all_of_them + message, one + self._micros * message)
                last = np.maximum(last, through + latency)
            gathers = number in pipeline.gathers
            begun = self.begun.setdefault(stage, np.asarray(last if gathers else first, dtype=np.float64))
            work = self.work.get(stage, 0.0) + seconds * (1 if gathers else self._micros)
            self.work[stage] = work
            if gathers:
                first = last = np.maximum(last + seconds, begun + work)
            else:
                first = first + seconds
                # The stage runs the whole block for each micro-batch between the first and the last.
                last = np.maximum(last + seconds, first + (self._micros - 1) * self._of_block[block])
                if number == pipeline.blocks[block].segments[end]:
                    last = np.maximum(last, begun + work)
            self.first[number], self.last[number] = first, last
            before[stage] = first, last
