"""What a pipeline knows of itself, and refuses."""

from __future__ import annotations

import pytest

from bpt.parallel.pipeline import Pipeline, StageBlock
from tests.parallel.pipeline.made import MadeFlow, chain


def test_blocks_are_maximal_runs_of_segments_on_a_stage() -> None:
    pipeline = chain((0, 0, 1, 0, 2, 2), passes=2, micro_batches=3)
    assert pipeline.blocks == (
        StageBlock(0, range(2)),
        StageBlock(1, range(2, 3)),
        StageBlock(0, range(3, 4)),
        StageBlock(2, range(4, 6)),
    )
    assert [pipeline.blocks_on(stage) for stage in range(3)] == [(0, 2), (1,), (3,)]
    assert (pipeline.depth, pipeline.micros) == (3, 6)
    assert pipeline.block_of == (0, 0, 1, 2, 3, 3)
    assert [pipeline.delay(block) for block in range(4)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    "flow",
    [
        MadeFlow(0, 0, 1, from_stage=0, to_stage=0),  # stays on its stage
        MadeFlow(0, 2, 1, from_stage=0, to_stage=1),  # goes down
        MadeFlow(0, 1, 2, from_stage=2, to_stage=1),  # not where its segments are
        MadeFlow(0, None, 2, from_stage=0, to_stage=1),  # data have no diff
    ],
)
def test_impossible_flows(flow: MadeFlow) -> None:
    with pytest.raises(AssertionError):
        Pipeline((0, 0, 1), (flow,))


def test_a_stage_without_segments() -> None:
    with pytest.raises(AssertionError):
        Pipeline((0, 2), ())
