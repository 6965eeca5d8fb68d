"""A virtual clock for pipelines: plays the instructions of all stages, and finds deadlocks and bubbles."""

from bpt.schedule.pipeline.simulation.clock import simulate
from bpt.schedule.pipeline.simulation.deadlock import DeadlockError
from bpt.schedule.pipeline.simulation.times import EqualTimes, Times
from bpt.schedule.pipeline.simulation.trace import Event, Trace

__all__ = ["DeadlockError", "EqualTimes", "Event", "Times", "Trace", "simulate"]
