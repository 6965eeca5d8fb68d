"""The model of a pipeline for its schedules: which stage has which segments, and what travels between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, Protocol


class Flow(Protocol):
    """A blob that one stage makes and another reads; it is sent once a micro-batch, straight to its reader.

    Attributes:
        index: its number, by which instructions name it.
        source: the segment that makes it; ``None``: a layer without bottoms (data), which stage 0 runs in ``Draw``.
        target: the first segment on the reading stage that reads it. Its backward is the last that adds to the diff.
        from_stage, to_stage: of source and target; they differ.
        diff: whether a diff goes back. Never if ``source`` is ``None``.
    """

    @property
    def index(self) -> int: ...
    @property
    def source(self) -> int | None: ...
    @property
    def target(self) -> int: ...
    @property
    def from_stage(self) -> int: ...
    @property
    def to_stage(self) -> int: ...
    @property
    def diff(self) -> bool: ...


class StageBlock(NamedTuple):
    """A maximal run of consecutive segments on one stage, which run one right after the other.

    A segment that gathers micro-batches is a block alone.
    """

    stage: int
    segments: range


@dataclass(frozen=True)
class Pipeline:
    """The assignment of segments to stages.

    Micro-batches are numbered through all passes of an iteration: from 0 to ``passes * micro_batches - 1``.

    Attributes:
        stages: the stage of each segment, in the order of the net. Every stage from 0 on has a segment. Segments of a
            stage need not be neighbours (GABRA).
        flows: what crosses stages.
        passes: the solver's iter_size; each pass draws a batch.
        micro_batches: parts of the batch of each pass.
        broadcast: an iteration starts by taking over the weights.
        overlap: a segment's gradients are exchanged right after its last backward; else after that of all segments.
        gathers: the segments that run once for all micro-batches of a pass, forward and backward.
    """

    stages: tuple[int, ...]
    flows: tuple[Flow, ...]
    passes: int = 1
    micro_batches: int = 1
    broadcast: bool = False
    overlap: bool = True
    gathers: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert self.stages and set(self.stages) == set(range(max(self.stages) + 1)), self.stages
        assert self.passes >= 1 and self.micro_batches >= 1, (self.passes, self.micro_batches)
        assert len({flow.index for flow in self.flows}) == len(self.flows), self.flows
        for flow in self.flows:
            assert flow.from_stage != flow.to_stage == self.stages[flow.target], flow
            if flow.source is None:
                assert flow.from_stage == 0 and not flow.diff, flow
            else:
                assert 0 <= flow.source < flow.target and flow.from_stage == self.stages[flow.source], flow

    @property
    def depth(self) -> int:
        """The number of stages."""
        return max(self.stages) + 1

    @property
    def micros(self) -> int:
        """The number of micro-batches of an iteration."""
        return self.passes * self.micro_batches

    @cached_property
    def blocks(self) -> tuple[StageBlock, ...]:
        """The maximal runs of segments on one stage, in the order of the net."""
        blocks, start = [], 0
        keys = [(stage, index if index in self.gathers else -1) for index, stage in enumerate(self.stages)]
        for (stage, _), run in groupby(keys):
            length = sum(1 for _ in run)
            blocks.append(StageBlock(stage, range(start, start + length)))
            start += length
        return tuple(blocks)

    def parts(self, block: int) -> int:
        """Return how many micro-batches a block runs at a time."""
        return self.micro_batches if self.blocks[block].segments[0] in self.gathers else 1

    def blocks_on(self, stage: int) -> tuple[int, ...]:
        """Return the numbers of the blocks of ``stage``."""
        return tuple(number for number, block in enumerate(self.blocks) if block.stage == stage)

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """The number of the block of each segment."""
        return tuple(number for number, block in enumerate(self.blocks) for _ in block.segments)

    def delay(self, block: int) -> int:
        """Return the iterations from a batch's forward to its backward, under DELAYED: the blocks behind it."""
        return len(self.blocks) - 1 - block
