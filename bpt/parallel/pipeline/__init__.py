"""Schedules of pipelines: what each stage does with its micro-batches, and when. Arithmetic only."""

from bpt.parallel.pipeline.model import Block, Flow, Pipeline
from bpt.parallel.pipeline.stage_streams import applied, delayed, instructions, streams

__all__ = [
    "Block",
    "Flow",
    "Pipeline",
    "applied",
    "delayed",
    "instructions",
    "streams",
]
