"""The memory layout of a run's nets: tried out in the first iterations, by all ranks together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bpt.allocator import release_free_memory
from bpt.comm.base import Communicator
from bpt.operators.layout import LayoutChoice
from bpt.operators.local import LocalOperator

LOG = logging.getLogger("bpt")


class Engine:
    """Has all operators of a run work in the layout of a LayoutChoice, from the start and whenever that changes.

    Args:
        engine: the solver's field of this name.
        operators: of all nets.
        world: the ranks that choose together: since they wait for each other, the slowest one's times count.
    """

    def __init__(self, engine: int, operators: Sequence[LocalOperator], world: Communicator) -> None:
        self._choice = LayoutChoice(engine)
        self._operators = operators
        self._world = world
        self._use()

    @property
    def settled(self) -> bool:
        """Whether the choice is made."""
        return self._choice.settled

    def record(self, seconds: float) -> bool:
        """Note how long this rank's iteration took; whether this settled the choice. A collective call until then."""
        if self._choice.record(max(self._world.allgather(seconds))):
            LOG.info("Engine: %s", self._choice)
        self._use()
        return self.settled

    def take_over(self, engine: int) -> None:
        """Go on in the layout of an earlier run; a choice that the solver has made stands."""
        self._choice.settle(engine)
        self._use()

    def settle(self) -> int:
        """Stop trying, and tell what is used from now on: what has been best so far."""
        if not self.settled:
            self._choice.settle()
            LOG.info("Engine: %s, since a snapshot is due before all trials are done", self._choice)
        self._use()
        return self._choice.engine

    def _use(self) -> None:
        if self._operators[0].engine != self._choice.engine:
            release_free_memory()  # blocks of the other layout's sizes would lie idle beside the new ones
        for operator in self._operators:
            operator.engine = self._choice.engine
