"""Pipeline: a computing node whose net is spread over several ranks (hybrid parallelism, section 3.2).

The first stage, the leader, has the data layers; it runs the Worker and talks with the server. Before it does its part
of anything, it tells the other stages what, and they ``follow``. So all stages do the same things in the same order.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from bpt.comm.base import Buffer, Communicator
from bpt.events.event import Activity
from bpt.metrics import Tally
from bpt.runtime.runtime import Runtime
from bpt.server.outcome import Outcome
from bpt.server.stage_weights import StageWeights
from bpt.server.trainer import Trainer
from bpt.signals import Action, SignalActions

_ACTIONS = (Action.SNAPSHOT, Action.STOP)


class Command(IntEnum):
    """What the leader tells the other stages to do."""

    LOAD = 1
    WARM_UP = 2
    STEP = 3  # iteration
    TALLY = 4
    SUBMIT = 5
    END = 6


class Pipeline(Trainer):
    """One stage of the net; on the leader, the whole net as a Worker handles it. Making it is a collective call.

    A command is a sum over the stages: of the leader's words, and of the signals that each rank has got since the last
    one. So the leader learns of these, and tells the server, wherever they came.

    Args:
        runtime: trains together with the other stages.
        gradients: see Trainer.
        stages: the ranks of the pipeline, in order; used by nobody else.
        signals: of this process.

    Attributes:
        size: of the flat weights of the whole net.
        terminated: whether SIGTERM came to any stage.
    """

    def __init__(
        self, runtime: Runtime, gradients: bool, stages: Communicator, signals: SignalActions | None = None
    ) -> None:
        super().__init__(runtime, gradients)
        self._stages = stages
        self._signals = signals
        self._weights = StageWeights(self._flat, stages)
        self.size = self._weights.size
        self.terminated = False
        self._asked: list[Action] = []  # on the leader, not yet taken

    def take(self) -> Action:
        """The action that a signal to any stage has asked for since the last call, one at a time; see SignalActions."""
        return self._asked.pop(0) if self._asked else Action.NONE

    # The leader's calls; see Trainer

    def load(self, weights: Buffer) -> None:
        self._tell(Command.LOAD)
        super().load(self._weights.scatter(weights))

    def warm_up(self) -> None:
        self._tell(Command.WARM_UP)
        super().warm_up()

    def step(self, iteration: int) -> float:
        self._tell(Command.STEP, iteration)
        return super().step(iteration)

    def tally(self) -> Tally:
        self._tell(Command.TALLY)
        return self._tally()

    def trained(self) -> Buffer:
        self._tell(Command.SUBMIT)
        return self._weights.gather(super().trained())

    def end(self, outcome: Outcome) -> None:
        self._tell(Command.END)
        self._stages.bcast(outcome)

    # The others

    def follow(self) -> Outcome:
        """Do what the leader does until the run has ended; returns how."""
        while True:
            command, number = self._meet(np.zeros(2))
            match Command(command):
                case Command.LOAD:
                    super().load(self._weights.scatter(None))
                case Command.WARM_UP:
                    super().warm_up()
                case Command.STEP:
                    super().step(number)
                case Command.TALLY:
                    self._tally()
                case Command.SUBMIT:
                    self._weights.gather(super().trained())
                case Command.END:
                    ended: Outcome = self._stages.bcast(None)
                    return ended

    def _tally(self) -> Tally:
        """The predictions of whichever stage has the classifier; right on the leader only."""
        own = super().tally()
        counts = np.array([own.correct, own.counted])
        with self._stages.events.part_of(Activity.STAGES):
            self._stages.Reduce(counts)
        return Tally(int(counts[0]), int(counts[1]), own.classifies)

    def _tell(self, command: Command, number: int = 0) -> None:
        assert self._stages.rank == 0, "the leader tells"
        self._meet(np.array([command, number], np.float64))

    def _meet(self, words: Buffer) -> tuple[int, ...]:
        """The leader's words, on all stages."""
        asked = self._signals.take() if self._signals else Action.NONE
        terminated = self._signals is not None and self._signals.terminated
        sums = np.array([*words, terminated, *(asked is action for action in _ACTIONS)], np.float64)
        with self._stages.events.part_of(Activity.STAGES):
            self._stages.Allreduce(sums)
        self.terminated |= bool(sums[len(words)])
        self._asked += [action for action, count in zip(_ACTIONS, sums[len(words) + 1 :], strict=True) if count]
        return tuple(map(int, sums[: len(words)]))
