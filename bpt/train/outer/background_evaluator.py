"""BackgroundEvaluator: tests and writes the global weights in a thread beside the server, so that no worker waits."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from bpt.system.comm.base import Buffer
from bpt.train.metrics import ScoreWatch
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.outer.report import TestRow
from bpt.train.solver.solver import Solver
from bpt.train.state.exchange_memory import SERVER_MEMORY

LOG = logging.getLogger("bpt")

_COURTESY = 1.0  # longest pause of a test in seconds


@dataclass(frozen=True)
class Moment:
    """A point in time of the run.

    Attributes:
        iteration: the solver's iteration.
        epoch: the corresponding number of epochs.
        version: the version of the weights.
        weights: the flat weights.
        seconds: seconds since the start.
        memory: what the server remembers besides the weights, for a snapshot.
    """

    iteration: int
    epoch: float
    version: int
    weights: Buffer
    seconds: float
    memory: Mapping[str, Buffer] = field(default_factory=dict)


class BackgroundEvaluator:
    """Executes tests and snapshots one after the other, in a thread of its own.

    Args:
        solver: has the test nets, and writes the snapshots.
        threads: number of torch's threads.
        apart: whether to work in a thread. If not, the caller does the work at once, because it uses the net itself.

    Attributes:
        tests: the results of the tests.
    """

    def __init__(self, solver: Solver, threads: int, apart: bool = True) -> None:
        self.tests: list[TestRow] = []
        self._solver = solver
        self._flat = FlatWeights(solver.net)
        self._threads = threads
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._tests_waiting = 0
        self._may_run = threading.Event()
        self._paused_until = 0.0
        self.yield_cores(False)
        for built in solver.runtime.nets.tests if apart else ():
            for layer in built.operator.net.layers:
                layer.register_forward_pre_hook(self._yield_cores_to_server)
        self._thread = threading.Thread(target=self._run, name="background evaluator", daemon=True) if apart else None
        if self._thread:
            self._thread.start()

    def test(self, moment: Moment, always: bool = False) -> None:
        """Request a test of all test nets with the weights of ``moment``.

        Args:
            always: whether to test even if the previous test has not begun. If not, the test is left out, because
                waiting weights take memory.
        """
        if self._tests_waiting and not always:
            LOG.info("Iteration %d: not tested, since the test before has not begun yet", moment.iteration)
            return
        self._tests_waiting += 1
        self._do(lambda: self._test(moment))

    def snapshot(self, moment: Moment) -> None:
        """Request a snapshot of ``moment``."""
        self._do(lambda: self._snapshot(moment))

    def yield_cores(self, now: bool) -> None:
        """Pause a test before its next layer, or resume it.

        During a pause the processor of the server's host is free for messages, for which workers wait. On a host with a
        quota, such as a container's, a test would use up the quota.
        """
        if now and self._may_run.is_set():
            self._paused_until = time.monotonic() + _COURTESY
            self._may_run.clear()
        elif not now:
            self._may_run.set()

    def _yield_cores_to_server(self, layer: nn.Module, bottoms: object) -> None:
        self._may_run.wait(max(0.0, self._paused_until - time.monotonic()))

    def check(self) -> None:
        """Raise the error of a test or snapshot, if there was one."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Finish all requests without further pauses, and end the evaluator.

        Raises:
            WriteError: a snapshot could not be written.
        """
        self.yield_cores(False)
        if self._thread:
            self._queue.put(None)
            self._thread.join()
        self.check()

    def _do(self, work: Callable[[], object]) -> None:
        if self._thread:
            self._queue.put(work)
        else:
            work()

    def _run(self) -> None:
        torch.set_num_threads(self._threads)  # only for this thread
        while (work := self._queue.get()) is not None:
            if self._error is None:
                try:
                    work()
                except BaseException as error:
                    self._error = error

    def _test(self, moment: Moment) -> None:
        self._tests_waiting -= 1
        self._take(moment)
        for index, built in enumerate(self._solver.runtime.nets.tests):
            with ScoreWatch(built.operator.net) as watch:
                scores = self._solver.test(index)
            if scores is None:
                return
            result = watch.result()
            row = TestRow(
                moment.seconds, moment.iteration, moment.epoch, moment.version, index, scores.loss, result.accuracy,
                result.auc,
            )  # fmt: skip
            self.tests.append(row)

    def _snapshot(self, moment: Moment) -> None:
        self._take(moment)
        memory = {name: torch.from_numpy(values) for name, values in moment.memory.items()}
        self._solver.runtime.run_state.beside = {SERVER_MEMORY: memory} if memory else {}
        self._solver.snapshot()

    def _take(self, moment: Moment) -> None:
        self._flat.load(moment.weights)
        self._solver.runtime.iteration = moment.iteration
