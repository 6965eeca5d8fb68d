"""The record of a run of the outer layer: a row for each update, node, test, allocation and migration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bpt.parallel.outer.quantities import NodePassTimes, balance_index, bytes_moved, waiting_time


@dataclass(frozen=True)
class UpdateRow:
    """A submission of a worker, and its effect.

    Attributes:
        version: the resulting version of the global weights; under SGWU all workers make it together.
        seconds_since_start: time at which it was applied.
        worker, host: the worker and its host.
        base: the version from which it was trained.
        staleness: number of versions that others had made since then.
        gamma: Eq. 9; NaN if it has no meaning (SGWU, ASGD).
        accuracy: Q, on the samples that were trained.
        factor: factor of its weights or of their change (Eq. 7, Eq. 10); NaN under ASGD.
        passes: number of the worker's passes over its own samples so far.
        samples: samples trained since its last submission.
        seconds: seconds of computing since then.
        waited: seconds of waiting for the server before that.
        loss: mean training loss; may be NaN.
        moved: bytes of weights between worker and server since the start; 0: not counted.
    """

    version: int
    seconds_since_start: float
    worker: int
    host: str
    base: int
    staleness: int
    gamma: float
    accuracy: float
    factor: float
    passes: float
    samples: int
    seconds: float
    waited: float
    loss: float
    moved: int = 0


@dataclass(frozen=True)
class NodeRow:
    """The totals of a computing node over the whole run.

    Attributes:
        samples_allocated: number of its samples at the end.
        passes: number of passes over these.
        computed_seconds: seconds of training.
        waited_seconds: seconds of waiting for the server between submissions and orders.
        idle_at_end_seconds: seconds from its last submission to the end of the run; 0 if it was lost.
        updates: number of submissions.
        bytes_sent, bytes_received: bytes of weights that the node has counted.
        lost: seconds after the start at which its loss was noticed; NaN: it was not lost.
    """

    worker: int
    host: str
    samples_allocated: int
    passes: float
    computed_seconds: float
    waited_seconds: float
    idle_at_end_seconds: float
    updates: int
    bytes_sent: int
    bytes_received: int
    lost: float = math.nan


@dataclass(frozen=True)
class ServerRow:
    """A parameter server apart from the main server.

    Attributes:
        rank, host: its rank and host.
        elements: number of elements in its part of the weights.
        updates: number of updates of this part.
        merging_seconds: seconds of executing commands.
        waiting_seconds: seconds without a command.
        bytes_sent, bytes_received: bytes of weights to and from workers.
    """

    rank: int
    host: str
    elements: int
    updates: float
    merging_seconds: float
    waiting_seconds: float
    bytes_sent: float
    bytes_received: float


@dataclass(frozen=True)
class TestRow:
    """A test of the global weights.

    Attributes:
        seconds: seconds since the start of the run.
        epoch: number of epochs trained by then.
        version: version of the global weights.
        net: number of the test net.
        loss, accuracy, auc: the scores; NaN if unknown.
    """

    seconds: float
    iteration: int
    epoch: float
    version: int
    net: int
    loss: float
    accuracy: float
    auc: float


@dataclass(frozen=True)
class AllocationRow:
    """The samples that a worker got from one of the A batches of training data (Alg. 3.1).

    Attributes:
        batch: a, from 1.
        seconds: seconds since the start of the run.
        samples: number of samples that it got.
        total: number of its samples afterwards.
    """

    batch: int
    seconds: float
    worker: int
    samples: int
    total: int


@dataclass(frozen=True)
class MigrationRow:
    """Samples that moved from a worker to another one that was alive (section 3.2.2).

    Attributes:
        seconds: since the start of the run.
        giver, taker: the workers.
        samples: that moved.
        giver_before, giver_now, taker_before, taker_now: seconds of a sample when the samples were divided last, and
            now; NaN: none was measured.
        longest_before, longest_after: seconds of the longest pass of all workers, without the moves and with them, by
            these times.
    """

    seconds: float
    giver: int
    taker: int
    samples: int
    giver_before: float
    giver_now: float
    taker_before: float
    taker_now: float
    longest_before: float
    longest_after: float


@dataclass
class RunRecord:
    """The record of a run so far.

    Attributes:
        title: the title of figures.
        weights: c_w, the bytes of all weights.
        iterations: K of Eq. 11, the number of submissions of each node; 0: the largest number of any node.
        seconds: execution time of the run; NaN: until its last update or test.
        facts: settings by name, for the summary: ``{"exchange": "AGWU"}``.
    """

    title: str = ""
    weights: int = 0
    iterations: int = 0
    seconds: float = math.nan
    facts: dict[str, str] = field(default_factory=dict)
    updates: list[UpdateRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    tests: list[TestRow] = field(default_factory=list)
    allocation: list[AllocationRow] = field(default_factory=list)
    servers: list[ServerRow] = field(default_factory=list)
    migration: list[MigrationRow] = field(default_factory=list)

    @property
    def execution_time(self) -> float:
        """The execution time in seconds."""
        if not math.isnan(self.seconds):
            return self.seconds
        ends = [row.seconds_since_start for row in self.updates] + [row.seconds for row in self.tests]
        return max(ends, default=0.0)

    @property
    def workers(self) -> tuple[int, ...]:
        """All workers that occur, in order."""
        return tuple(sorted({row.worker for row in self.nodes} | {row.worker for row in self.updates}))

    def durations(self) -> list[list[float | None]]:
        """Return t_j^(i): for each iteration, a pass over a node's own samples, the seconds of each node.

        Nodes are in the order of ``workers``; ``None``: the node had no such pass. If several submissions make a pass,
        or several passes a submission, their seconds are summed or divided (see ``NodePassTimes``).
        """
        places = {worker: place for place, worker in enumerate(self.workers)}
        times = NodePassTimes(len(places))
        for row in self.updates:
            missed = min(self._missed(row.worker), max(math.ceil(row.passes) - 1, 0))
            times.add(places[row.worker], row.passes, row.seconds, missed)
        return times.durations

    @property
    def lost(self) -> int:
        """The number of lost nodes."""
        return sum(not math.isnan(row.lost) for row in self.nodes)

    def waiting_time(self) -> float:
        """Return the seconds that all ``workers`` would wait for the slowest in each pass, as under SGWU (Eq. 8)."""
        return waiting_time(self.durations())

    def balance_index(self) -> float:
        """Return the balance index; it is 1 if all nodes have the same work relative to their speed."""
        return balance_index(self.durations())

    def balance_indices(self) -> list[float]:
        """Return the balance index of each iteration."""
        return [balance_index([times]) for times in self.durations()]

    def waited_share(self) -> float:
        """Return the fraction of the nodes' time spent waiting for the server: Σ_j waited / (m · execution time)."""
        return self._share([row.waited_seconds for row in self.nodes])

    def computed_share(self) -> float:
        """Return the fraction of the nodes' time spent computing."""
        return self._share([row.computed_seconds for row in self.nodes])

    def bytes_counted(self) -> int:
        """Return the bytes of weights that all nodes sent and received."""
        return sum(row.bytes_sent + row.bytes_received for row in self.nodes)

    def bytes_expected(self) -> int:
        """Return the bytes by Eq. 11, which assumes that all nodes, even lost ones, submit to the end."""
        return bytes_moved(self.weights, self.senders, self.exchanges)

    @property
    def senders(self) -> int:
        """M of Eq. 11: the number of nodes without the one that shares the server's memory."""
        return sum(row.bytes_sent + row.bytes_received > 0 for row in self.nodes)

    @property
    def exchanges(self) -> int:
        """K of Eq. 11, the number of exchanges."""
        return self.iterations or max((row.updates for row in self.nodes), default=0)

    def tests_of(self, net: int = 0) -> list[TestRow]:
        """Return the tests of one test net."""
        return [row for row in self.tests if row.net == net]

    def time_to(self, accuracy: float, net: int = 0) -> float | None:
        """Return the seconds until a test reached this accuracy, or ``None`` if no test did."""
        return next((row.seconds for row in self.tests_of(net) if row.accuracy >= accuracy), None)

    def best_accuracy(self, net: int = 0) -> float:
        """Return the best accuracy; NaN without tests."""
        known = [row.accuracy for row in self.tests_of(net) if not math.isnan(row.accuracy)]
        return max(known, default=math.nan)

    def _share(self, seconds: Sequence[float]) -> float:
        together = len(self.nodes) * self.execution_time
        return math.fsum(seconds) / together if together else 0.0

    def _missed(self, worker: int) -> int:
        """Return the number of passes of the others before ``worker`` got its first samples."""
        batches = [row.batch for row in self.allocation if row.worker == worker and row.samples]
        return max(min(batches, default=1) - 1, 0)
