"""Schedules of pipelines: what each stage does with its micro-batches, and when. Arithmetic only."""

from bpt.parallel.pipeline.model import Flow, Pipeline, StageBlock
from bpt.parallel.pipeline.stage_streams import applied, delayed, instructions, streams

__all__ = [
    "Flow",
    "Pipeline",
    "StageBlock",
    "applied",
    "delayed",
    "instructions",
    "streams",
]
