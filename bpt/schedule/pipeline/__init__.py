"""Schedules of pipelines: what each stage does with its micro-batches, and when. Arithmetic only."""

from bpt.schedule.pipeline.model import Block, Flow, Pipeline
from bpt.schedule.pipeline.streams import applied, delayed, instructions, streams

__all__ = [
    "Block",
    "Flow",
    "Pipeline",
    "applied",
    "delayed",
    "instructions",
    "streams",
]
