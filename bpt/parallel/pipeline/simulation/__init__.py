"""A virtual clock for pipelines: plays the instructions of all stages, and finds deadlocks and bubbles."""

from bpt.parallel.pipeline.simulation.clock import DeadlockError, PlayedStage, play, simulate
from bpt.parallel.pipeline.simulation.trace import EqualTimes, PipelineTimes, PipelineTrace, StageEvent

__all__ = [
    "DeadlockError",
    "EqualTimes",
    "PipelineTimes",
    "PipelineTrace",
    "PlayedStage",
    "StageEvent",
    "play",
    "simulate",
]
