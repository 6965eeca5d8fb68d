"""Made-up pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.instructions import Instruction, Recv, Send
from bpt.parallel.pipeline import Pipeline

GPIPE = pb.PipelineParameter.GPIPE
ONE_F_ONE_B = pb.PipelineParameter.ONE_F_ONE_B
SEQUENTIAL = pb.PipelineParameter.SEQUENTIAL
DELAYED = pb.PipelineParameter.DELAYED
ZERO_BUBBLE = pb.PipelineParameter.ZERO_BUBBLE
EXACT = [GPIPE, ONE_F_ONE_B, SEQUENTIAL, ZERO_BUBBLE]


@dataclass(frozen=True)
class MadeFlow:
    index: int
    source: int | None
    target: int
    from_stage: int
    to_stage: int
    diff: bool = True


def make_flow(index: int, source: int | None, target: int, stages: Sequence[int], diff: bool = True) -> MadeFlow:
    from_stage = 0 if source is None else stages[source]
    return MadeFlow(index, source, target, from_stage, stages[target], diff)


def chain(stages: Sequence[int], passes: int = 1, micro_batches: int = 1) -> Pipeline:
    """Each segment reads the one before it; the flows are numbered from the bottom up."""
    crossings = [upper for upper in range(1, len(stages)) if stages[upper - 1] != stages[upper]]
    flows = tuple(make_flow(index, upper - 1, upper, stages) for index, upper in enumerate(crossings))
    return Pipeline(tuple(stages), flows, passes, micro_batches)


def text(instructions: Sequence[Instruction], messages: bool = True) -> str:
    return " ".join(str(its) for its in instructions if messages or not isinstance(its, Send | Recv))


@st.composite
def pipelines(draw: st.DrawFn, contiguous: bool = False, one_micro_batch: bool = False) -> Pipeline:
    """Any placement, and any flows between its stages, data among them; several segments may stand side by side."""
    places = draw(st.lists(st.integers(0, 3), min_size=1, max_size=7))
    names = sorted(set(places))
    stages = sorted(map(names.index, places)) if contiguous else list(map(names.index, places))
    if not contiguous:
        order = draw(st.permutations(range(len(names))))
        stages = [order[stage] for stage in stages]
    crossings: list[tuple[int | None, int]] = [
        (source, target)
        for target in range(len(stages))
        for source in range(target)
        if stages[source] != stages[target]
    ]
    crossings += [(None, target) for target, stage in enumerate(stages) if stage]
    chosen = draw(st.lists(st.sampled_from(crossings), max_size=8)) if crossings else []
    numbers = draw(st.permutations(range(len(chosen))))
    flows = tuple(
        make_flow(number, source, target, stages, diff=source is not None and draw(st.booleans()))
        for number, (source, target) in zip(numbers, chosen, strict=True)
    )
    counts = st.just(1) if one_micro_batch else st.integers(1, 4)
    return Pipeline(tuple(stages), flows, draw(counts), draw(counts), draw(st.booleans()), draw(st.booleans()))
