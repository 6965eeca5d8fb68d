"""OuterSchedule: hands samples and weights out to the workers of BPT-CNN's outer layer (section 3.3).

What is common to SGWU, AGWU and ASGD: allocation of the samples in batches (IDPA or UDPA), counting of passes, and
workers that come and go.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction

from bpt.data.sample_partition import Allocation, Run, size
from bpt.parallel.outer.finish import Finish
from bpt.parallel.outer.idpa import Idpa, total_iterations
from bpt.parallel.outer.outer_instructions import CutShort, Instruction, Lost, Order, SendOrder, SubmissionReport

ENOUGH = 0.25  # the part of a pass after which its own speed tells more than that of the pass before


class WorkerState(Enum):
    """The state of a worker."""

    PARKED = auto()  # it has no samples yet
    TRAINING = auto()
    SUBMITTED = auto()  # it waits for an order
    STOPPED = auto()
    LOST = auto()


@dataclass
class WorkerRecord:
    """A worker as the main server knows it.

    Attributes:
        passes: that it has done.
        pending: samples that it will get with its next order.
        samples: that it has, without those.
        taken: seconds and samples that it has submitted of the pass that it is at.
        time: seconds a sample in the last pass that it has finished; ``None``: it has not finished any.
        order: its last one.
        hint: seconds and samples that it has told of what it does by its last order.
        clock: seconds that it has computed and waited.
        computed: seconds that it has computed.
        end: passes after which it ends; ``None``: not settled yet.
    """

    state: WorkerState = WorkerState.PARKED
    passes: Fraction = Fraction(0)
    pending: list[Run] = field(default_factory=list)
    samples: int = 0
    taken: tuple[float, int] = (0.0, 0)
    time: float | None = None
    hint: tuple[float, int] = (0.0, 0)
    order: Order | None = None
    clock: float = 0.0
    computed: float = 0.0
    end: Fraction | None = None

    def pace(self) -> float | None:
        """Return its newest seconds a sample: those of this pass if enough of it is done or it is the first."""
        seconds, samples = (told + taken for told, taken in zip(self.hint, self.taken, strict=True))
        known = seconds > 0 and samples > 0
        if self.state is WorkerState.TRAINING and known and (self.time is None or samples >= ENOUGH * self.samples):
            return seconds / samples
        return self.time


class OuterSchedule(ABC):
    """Decides who trains what next, and what becomes of submitted weights.

    Every node trains its samples K' times (Eq. 6): once after each of the A batches that are handed out, then the
    rest. A pass may be a part of one at the end, if K is not whole. Batch a is handed out when the first worker that
    needs it has done its pass a - 1; the others get their samples of it with their next order. Until all is handed
    out, a worker submits after every pass, later after ``local_epochs`` passes.

    Args:
        idpa: divides the samples; one that has handed out nothing yet.
        passes: K, how often the samples are to be trained; need not be whole.
        local_epochs: passes before a worker submits.
        together: whether workers end together: then the last passes of some are more than those of others, see Finish.

    Attributes:
        nodes: of each worker.
        total: K'.
    """

    _period = 0  # iterations after which a worker submits even within a pass; 0: never

    def __init__(self, idpa: Idpa, passes: Fraction, local_epochs: int = 1, together: bool = False) -> None:
        whole = passes.numerator // passes.denominator
        self.idpa = idpa
        self.total = passes if idpa.batches == 1 else total_iterations(whole, idpa.batches) + passes - whole
        self.nodes = [WorkerRecord() for _ in range(idpa.nodes)]
        self._local_epochs = local_epochs
        self._finish = Finish() if together else None
        self._stopping = False
        self._counts = Counter({WorkerState.PARKED: idpa.nodes})  # kept up, since it takes long to count 10,000 workers
        self._trained = [(0, 0, 0, 0)] * idpa.nodes  # kept up as well; see _count
        self._sums = (0, 0, 0, 0)
        self._ended = 0  # workers that have settled where they end
        self._given = False  # whether samples have been handed out since workers were last woken

    def begin(self, frequencies: Sequence[float | None]) -> list[Instruction]:
        """Start all workers, with the first batch; ``frequencies`` as for ``Idpa.first``."""
        self._give(self.idpa.first(frequencies))
        return self._wake()

    def submitted(self, report: SubmissionReport) -> list[Instruction]:
        """Return the instructions that follow from a worker's submission."""
        node = self.nodes[report.worker]
        assert node.state is WorkerState.TRAINING, (report, node)
        seconds, samples = node.taken
        node.taken = seconds + report.seconds, samples + report.samples
        node.clock += report.seconds + report.waited
        node.computed += report.seconds
        # Under ASGD a worker submits within a pass, too.
        if math.floor(report.passes) > math.floor(node.passes) or report.passes >= (node.end or self.total):
            seconds, samples = node.taken
            if samples and seconds > 0:
                node.time = seconds / samples
            node.taken = 0.0, 0
        node.hint = 0.0, 0
        node.passes = report.passes
        self._count(report.worker)
        self._note(report.worker)
        self._turn(report.worker, WorkerState.SUBMITTED)
        return [*self._cut(report), *self._exchange(report), *self._wake()]

    def progressed(self, worker: int, samples: int, seconds: float) -> None:
        """Note that a worker has trained so many samples since its last order, in so many seconds."""
        self.nodes[worker].hint = seconds, samples

    def hands_out(self, worker: int) -> bool:
        """Return whether a submission of ``worker`` that ends its pass would hand out the next batch."""
        return self._needs_batch(self.nodes[worker].passes // 1 + 1)

    def lost(self, *workers: int) -> list[Instruction]:
        """Return what follows from the loss of workers: the others that still train get their samples.

        Raises:
            RunError: there are no others, and none has done all its passes either.
        """
        gone = tuple(
            w for w in sorted(set(workers)) if self.nodes[w].state not in (WorkerState.LOST, WorkerState.STOPPED)
        )
        reached = Fraction(max((self.nodes[worker].passes // 1 for worker in gone), default=0))
        for worker in workers:
            node = self.nodes[worker]
            self._turn(worker, WorkerState.LOST)
            node.pending, node.samples = [], 0
            self._count(worker)
            if self._finish is not None:
                self._finish.forget(worker)
        if not gone:
            return []
        heirs = set(self.idpa.present) - set(gone)
        if (
            heirs
            or not self._counts[WorkerState.STOPPED]
            + self._counts[WorkerState.TRAINING]
            + self._counts[WorkerState.SUBMITTED]
        ):
            for worker in self.workers(WorkerState.PARKED):  # who has trained nothing goes on where the dead were
                node = self.nodes[worker]
                node.passes = max(node.passes, reached)
            paces = [node.pace() for node in self.nodes]
            self._give(self.idpa.leave(*gone, seconds_per_sample=paces))
        return [Lost(gone, bool(heirs)), *self._without(gone), *self._wake()]

    def stop(self) -> None:
        """Stop every worker when it submits, even if passes are left."""
        self._stopping = True

    @property
    def done(self) -> bool:
        """Whether all workers have stopped training."""
        return self._counts[WorkerState.STOPPED] + self._counts[WorkerState.LOST] == len(self.nodes)

    @property
    def progress(self) -> Fraction:
        """The part of all training that is done (passes by samples), from 0 to 1."""
        samples, trained, through, _ = self._sums
        # In whole numbers: (trained + through * total) / (samples * total).
        total, parts = self.total.numerator, self.total.denominator
        return Fraction(trained * parts + through * total, samples * total) if samples else Fraction(0)

    def share(self, worker: int) -> float:
        """Return a worker's samples relative to the mean of all workers; 1 if there are none."""
        samples, _, _, holders = self._sums
        return self.nodes[worker].samples * holders / samples if samples else 1.0

    def workers(self, *states: WorkerState) -> tuple[int, ...]:
        """Return the workers in one of ``states``."""
        return tuple(worker for worker, node in enumerate(self.nodes) if node.state in states)

    @abstractmethod
    def _exchange(self, report: SubmissionReport) -> list[Instruction]:
        """Return the instructions for a worker's submission."""

    @abstractmethod
    def _without(self, gone: Sequence[int]) -> list[Instruction]:
        """Return the instructions for the remaining workers after a loss."""

    @abstractmethod
    def _joins(self, worker: int) -> int:
        """Start a worker; return the version that it trains from."""

    @abstractmethod
    def _leaves(self, worker: int) -> None:
        """Note that a worker has done all its passes."""

    def _needs_batch(self, passes: Fraction | int) -> bool:
        """Return whether a worker that has done so many passes needs another batch."""
        return not self.idpa.done and not self._stopping and passes >= self.idpa.batch

    def _hand_out(self) -> None:
        """Hand out the next batch."""
        for node in self.nodes:
            if node.state is WorkerState.PARKED:
                node.passes = Fraction(self.idpa.batch)  # it has missed them
        self._give(self.idpa.next([node.pace() for node in self.nodes]))

    def _turn(self, worker: int, state: WorkerState) -> None:
        """Change the state of a worker."""
        self._counts[self.nodes[worker].state] -= 1
        self._counts[state] += 1
        self.nodes[worker].state = state

    def _count(self, worker: int) -> None:
        """Update the sums of samples, samples by passes, and finished samples after a change of a worker.

        And whether it has any.

        By passes in whole numbers: sums of fractions of thousands of workers would have as many digits.
        """
        node = self.nodes[worker]
        samples, done = node.samples + size(node.pending), node.passes >= (node.end or self.total)
        passes = min(node.passes, self.total) if node.end else node.passes  # some make more than all of them
        by_passes = 0 if done else samples * passes.numerator // passes.denominator
        now = samples, by_passes, samples if done else 0, int(samples > 0)
        before, self._trained[worker] = self._trained[worker], now
        a, b, c, d = (total - old + new for total, old, new in zip(self._sums, before, now, strict=True))
        self._sums = a, b, c, d

    def _give(self, more: Allocation) -> None:
        self._given = True
        for worker, runs in enumerate(more.runs):
            if runs:
                self.nodes[worker].pending += runs
                self._count(worker)
                self._note(worker)

    def _note(self, worker: int) -> None:
        """Update the moment at which all end, after a change of a worker."""
        node = self.nodes[worker]
        samples = node.samples + size(node.pending)
        if self._finish is not None and node.end is None and node.time and samples:
            pace = node.time * node.clock / node.computed  # a sample, waiting included
            self._finish.note(worker, pace, node.clock, samples * float(self.total - node.passes))

    def _settle(self, worker: int, until: Fraction) -> None:
        """Determine whether an order to ``until`` is the worker's last, and where it ends then.

        Only the last order is made longer or shorter, so that all submit equally often (Eq. 11).
        """
        node, finish = self.nodes[worker], self._finish
        if node.end is not None or self._stopping or until < self.total:
            return
        node.end = self.total
        if finish is not None and worker in finish:
            if self.idpa.done and len(finish) + self._ended >= self._sums[3]:
                samples = node.samples + size(node.pending)
                more = min(max(1, round(finish.samples(worker))), math.floor((self.total + 1 - node.passes) * samples))
                node.end = node.passes + Fraction(more, samples)
                finish.settle(worker, more)
            else:
                finish.forget(worker)
        self._ended += 1

    def _wake(self) -> list[Instruction]:
        """Start parked workers that have got their first samples; at the end, stop the others."""
        sends: list[Instruction] = []
        if self._given and not self._stopping and self._counts[WorkerState.PARKED]:
            ready = [worker for worker in self.workers(WorkerState.PARKED) if self.nodes[worker].pending]
            sends += [self._send(worker, self._joins(worker)) for worker in ready]
        self._given = False
        if not self._counts[WorkerState.TRAINING] + self._counts[WorkerState.SUBMITTED]:
            sends += [self._let_go(worker) for worker in self.workers(WorkerState.PARKED)]
        return sends

    def _let_go(self, worker: int) -> SendOrder:
        """Stop a worker that has not trained."""
        self._turn(worker, WorkerState.STOPPED)
        return SendOrder(Order(worker, 0, weights=False, stop=True))

    def _send(self, worker: int, version: int, weights: bool = True) -> SendOrder:
        """Return the next order of a worker that has trained, or has joined."""
        node = self.nodes[worker]
        begun = math.floor(node.passes)
        until = Fraction(begun + (self._local_epochs if self.idpa.done else 1))
        self._settle(worker, until)
        ended = node.end is not None and node.passes >= node.end
        if ended or self._stopping:
            self._turn(worker, WorkerState.STOPPED)
            self._leaves(worker)
            until = max(node.passes, self.total) if ended else node.passes  # by which a replay tells them apart
            return SendOrder(Order(worker, version, until, node.passes, weights=False, stop=True))
        runs: tuple[Run, ...] = ()
        if node.passes == begun:  # within a pass, its samples stay what they are
            runs = tuple(node.pending)
            node.pending.clear()
            node.samples += size(runs)
        self._turn(worker, WorkerState.TRAINING)
        if node.end is not None:
            until = node.end
            if self.idpa.has(worker):  # what others leave behind could not reach it any more
                self.idpa.retire(worker)
        node.order = Order(worker, version, until, node.passes, runs, self._period, weights, batch=self.idpa.batch)
        return SendOrder(node.order)

    def _cut(self, report: SubmissionReport) -> list[Instruction]:
        order = self.nodes[report.worker].order
        assert order is not None, report
        if report.passes >= order.until or (order.iterations and report.iterations >= order.iterations):
            return []
        return [CutShort(report.worker, report.passes, report.iterations)]
