"""WorkerRanks: a computing node with several synchronous ranks: stages, shards and replicas (section 3.2).

The first rank, the leader, runs the Worker and communicates with the server. Before it does its part of an operation,
it sends a command to the others, which ``follow``. So all ranks do the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from bpt.base.signals import SignalAction, SignalActions
from bpt.data.sample_partition import Run
from bpt.data.shipped import RecordCache, RecordChunk
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.events.event import Activity
from bpt.train.metrics import CorrectCount
from bpt.train.outer.divided_weights import DividedWeights
from bpt.train.outer.trainer import Trainer
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import RunOutcome

_ACTIONS = (SignalAction.SNAPSHOT, SignalAction.STOP)


class Command(IntEnum):
    """A command of the leader to the other ranks."""

    LOAD = 1
    WARM_UP = 2
    STEP = 3  # iteration
    TALLY = 4
    SUBMIT = 5
    END = 6
    ALLOCATE = 7  # number of passes that count as done
    RECORDS = 8  # data layer
    EXAMINE = 9  # iterations


class WorkerRanks(Trainer):
    """One rank's part of the net; on the leader, the whole net for a Worker. The constructor is a collective call.

    A command is a sum over the ranks, of the leader's words and of the signals that each rank has received since the
    last command. So the leader gets the signals of all ranks and reports them to the server.

    Args:
        runtime: trains together with the other ranks.
        gradients: as in Trainer.
        ranks: the ranks of the worker, in order; only this object uses them.
        signals: the signals of this process.
        caches: the caches of the data layers whose records the server sends.

    Attributes:
        size: number of elements of the whole net's flat weights.
        terminated: whether any rank has received SIGTERM.
    """

    def __init__(
        self,
        runtime: Runtime,
        gradients: bool,
        ranks: Communicator,
        signals: SignalActions | None = None,
        caches: Sequence[RecordCache] = (),
    ) -> None:
        super().__init__(runtime, gradients)
        self._ranks = ranks
        self._signals = signals
        self._caches = caches
        parallel, net = runtime.parallel, runtime.net
        self._weights = DividedWeights(net, self._flat, parallel.grid, parallel.parts(net.graph))
        self.size = self._weights.size
        self.terminated = False
        self._asked: list[SignalAction] = []  # on the leader: actions that nobody has taken yet
        self._allocated = False

    def take(self) -> SignalAction:
        """Return the next action that a signal to any rank has asked for, one at a time.

        See SignalActions.
        """
        return self._asked.pop(0) if self._asked else SignalAction.NONE

    # The leader's calls, as of Trainer

    def store(self, layer: int, chunk: RecordChunk) -> None:
        self._command(Command.RECORDS, layer)
        self._store(layer, chunk)

    def allocate(self, runs: Sequence[Run], begun: int, gives: Sequence[Run] = ()) -> None:
        if runs or gives or not self._allocated:  # ASGD has many orders without samples, which need no command
            self._command(Command.ALLOCATE, begun)
            self._allocate(runs, begun, gives)

    def load(self, weights: Buffer) -> None:
        self._command(Command.LOAD)
        super().load(self._weights.scatter(weights))

    def warm_up(self) -> None:
        self._command(Command.WARM_UP)
        super().warm_up()

    def step(self, iteration: int) -> float:
        self._command(Command.STEP, iteration)
        return super().step(iteration)

    def examine(self, iterations: int) -> None:
        self._command(Command.EXAMINE, iterations)
        super().examine(iterations)

    def tally(self) -> CorrectCount:
        self._command(Command.TALLY)
        return self._tally()

    def trained(self) -> Buffer:
        self._command(Command.SUBMIT)
        return self._weights.gather(super().trained())

    def end(self, outcome: RunOutcome) -> None:
        self._command(Command.END)
        self._ranks.bcast(outcome)

    # The others

    def follow(self) -> RunOutcome:
        """Execute the leader's commands until the run has ended, and return its outcome."""
        while True:
            command, number = self._exchange_words(np.zeros(2))
            match Command(command):
                case Command.RECORDS:
                    self._store(number, None)
                case Command.ALLOCATE:
                    self._allocate((), number)
                case Command.LOAD:
                    super().load(self._weights.scatter(None))
                case Command.WARM_UP:
                    super().warm_up()
                case Command.STEP:
                    super().step(number)
                case Command.EXAMINE:
                    super().examine(number)
                case Command.TALLY:
                    self._tally()
                case Command.SUBMIT:
                    self._weights.gather(super().trained())
                case Command.END:
                    ended: RunOutcome = self._ranks.bcast(None)
                    return ended

    def _store(self, layer: int, chunk: RecordChunk | None) -> None:
        """Broadcast records to all ranks; ranks without data drop them."""
        with self._ranks.events.part_of(Activity.WITHIN):
            sizes = np.array([len(chunk.table), len(chunk.content)] if chunk else [0, 0])
            self._ranks.Bcast(sizes)
            records, length = sizes.tolist()
            chunk = chunk or RecordChunk(np.empty((records, 3), np.int64), np.empty(length, np.uint8))
            self._ranks.Bcast(chunk.table)
            self._ranks.Bcast(chunk.content)
        if self.layers:
            self._caches[layer].append(chunk)

    def _allocate(self, runs: Sequence[Run], begun: int, gives: Sequence[Run] = ()) -> None:
        """Change the samples on each rank with data, which gets its share of each batch of the same stream."""
        runs, gives = self._ranks.bcast((tuple(runs), tuple(gives)))
        super().allocate(runs, begun, gives)
        self._allocated = True

    def _tally(self) -> CorrectCount:
        """Return the predictions of all ranks with the classifier; only the leader's result is complete."""
        own = super().tally()
        counts = np.array([own.correct, own.counted])
        with self._ranks.events.part_of(Activity.WITHIN):
            self._ranks.Reduce(counts)
        return CorrectCount(int(counts[0]), int(counts[1]), own.classifies)

    def _command(self, command: Command, number: int = 0) -> None:
        assert self._ranks.rank == 0, "only the leader commands"
        self._exchange_words(np.array([command, number], np.float64))

    def _exchange_words(self, words: Buffer) -> tuple[int, ...]:
        """Return the leader's words on all ranks."""
        asked = self._signals.take() if self._signals else SignalAction.NONE
        terminated = self._signals is not None and self._signals.terminated
        sums = np.array([*words, terminated, *(asked is action for action in _ACTIONS)], np.float64)
        with self._ranks.events.part_of(Activity.WITHIN):
            self._ranks.Allreduce(sums)
        self.terminated |= bool(sums[len(words)])
        self._asked += [action for action, count in zip(_ACTIONS, sums[len(words) + 1 :], strict=True) if count]
        return tuple(map(int, sums[: len(words)]))
