"""Tuned settings of a run, which all ranks try out together in the first iterations."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from bpt.base.malloc_settings import release_free_memory
from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.inner_choice import InnerChoice
from bpt.engine.measured_choice import MeasuredChoice
from bpt.engine.memory_format_choice import MemoryFormatChoice
from bpt.engine.operator import Operator
from bpt.system.comm.base import Communicator

if TYPE_CHECKING:
    from bpt.parallel.task_dag import TaskDagCompute

LOG = logging.getLogger("bpt")


class TunedSetting:
    """A choice that operators follow, from the start and whenever it changes.

    Args:
        choice: the choice by measurements.
        world: the ranks that choose together; the times of the slowest count, because the others wait for it.

    Attributes:
        is_loaded: whether the choice is that of an earlier run.
    """

    title: ClassVar[str]
    name: ClassVar[str]  # in a TrainState

    def __init__(self, choice: MeasuredChoice, world: Communicator) -> None:
        self._choice = choice
        self._world = world
        self.is_loaded = False
        self._use(choice.engine)

    def _use(self, engine: int) -> None:
        raise NotImplementedError

    @property
    def engine(self) -> int:
        """The current choice."""
        return self._choice.engine

    @property
    def settled(self) -> bool:
        """Whether the choice is final."""
        return self._choice.settled

    def record(self, seconds: float) -> bool:
        """Record the time of this rank's iteration; return whether the choice is final now. Collective until then."""
        if self._choice.record(max(self._world.allgather(seconds))):
            LOG.info("%s: %s", self.title, self._choice)
        self._use(self._choice.engine)
        return self.settled

    def state(self) -> tuple[int, ...]:
        """Return the choice for a run that continues this one; () before it is final."""
        return (self.engine,) if self.settled else ()

    def load(self, state: Sequence[int]) -> None:
        """Continue with the choice of an earlier run, which is its ``state()`` and not empty; a final choice stays."""
        (engine,) = state
        self.is_loaded = self.is_loaded or not self.settled
        self._choice.settle(engine)
        self._use(self._choice.engine)

    def settle(self) -> int:
        """Stop the trials, and log the choice: the best one so far."""
        if not self.settled:
            self._choice.settle()
            LOG.info("%s: %s, since a snapshot is due before all trials are done", self.title, self._choice)
        self._use(self._choice.engine)
        return self._choice.engine


class MemoryFormatSetting(TunedSetting):
    """The memory layout of a run's nets.

    Args:
        engine: the solver's field ``engine``.
        operators: the operators of all nets.
        world: as in TunedSetting.
    """

    title = "Engine"
    name = "engine"

    def __init__(self, engine: int, operators: Sequence[Operator], world: Communicator) -> None:
        self._operators = operators
        super().__init__(MemoryFormatChoice(engine), world)

    def _use(self, engine: int) -> None:
        if self._operators[0].engine != engine:
            release_free_memory()  # blocks with the other layout's sizes would stay unused
        for operator in self._operators:
            operator.engine = engine


class Inner(TunedSetting):
    """The choice of the inner engine: torch's threads, or those of the inner layer.

    Args:
        param: has ``inner_param { engine }``. Only AUTO changes anything, because operators have the engine of other
            values from the start. It is LIBRARY from the start if no rank has an operator with both engines.
        operators: the operators of all nets.
        world: as in TunedSetting.
    """

    title = "Inner"
    name = "inner"

    def __init__(self, param: ParallelSpec, operators: Sequence[Operator], world: Communicator) -> None:
        engine: int = param.inner_param.engine
        self._computes: list[TaskDagCompute] = []
        if engine == pb.InnerParameter.AUTO:
            # A run imports only what it needs; see docs/architecture.md.
            from bpt.parallel.task_dag import TaskDagCompute  # noqa: PLC0415

            computes = (operator.compute for operator in operators)
            self._computes = [each for each in computes if isinstance(each, TaskDagCompute) and each.threads > 1]
            if not any(world.allgather(bool(self._computes))):
                engine = pb.InnerParameter.LIBRARY
        super().__init__(InnerChoice(engine), world)

    def _use(self, engine: int) -> None:
        for compute in self._computes:
            compute.inner = engine
            if self.settled and engine == pb.InnerParameter.LIBRARY:
                compute.close()
