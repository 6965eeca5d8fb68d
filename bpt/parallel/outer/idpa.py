"""IDPA: training data handed out in batches, to each node by its measured speed (BPT-CNN, section 3.3.1, Alg. 3.1).

A *batch* is here what the paper calls so: one of A parts of the training data, not the samples of an iteration. And an
*iteration* is one pass of each node over the samples that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from fractions import Fraction
from statistics import fmean

from bpt.base.errors import RunError
from bpt.data.sample_partition import Allocation, Run, as_printed, by_frequency, deal, empty_allocation, harmonic, size

Divide = Callable[[int, Sequence[int], Sequence[float]], list[int]]


class DivisionRule(Enum):
    """The rule by which a batch is divided.

    HARMONIC: all nodes finish together, T_a = ⌊N/A⌋ · a / Σ 1/t̄_j. PAPER: Eq. 2 to 5 as printed, which starve the last
    node if nodes differ.
    """

    HARMONIC = "HARMONIC"
    PAPER = "PAPER"


class Idpa:
    """Incremental data partitioning and allocation: every sample goes to one node, once, and stays there.

    A sample changes its node only if that node leaves, or if Migration calls ``move``.

    It is given measured times; it neither measures nor sends. ::

        idpa = Idpa(60_000, nodes=3, batches=4)
        new = idpa.first(frequencies)                       # to each node its new.runs
        while not idpa.done:
            …                                               # each node trains all it has once
            new = idpa.next(mean_times(durations, trained))

    Batches have ⌊N/A⌋ samples, the last one N mod A more. A node that is slower than it looked before gets less of the
    next batches, or nothing, but keeps what it has. The same calls give the same allocation, on every machine.

    Args:
        samples: N, the training samples.
        nodes: m, the computing nodes; they are numbered from 0.
        batches: A.
        rule: how a batch is divided.
        grain: the number of samples that stay together; what a node gets, and N, are multiples of it.

    Attributes:
        batch: a, how many batches have been handed out.
        allocated: what each node has.
    """

    def __init__(
        self, samples: int, nodes: int, batches: int, rule: DivisionRule = DivisionRule.HARMONIC, *, grain: int = 1
    ) -> None:
        assert nodes >= 1 and samples % grain == 0, (nodes, samples, grain)
        assert 1 <= batches <= samples // grain, (batches, samples, grain)
        self.samples = samples
        self.grain = grain
        self.nodes = nodes
        self.batches = batches
        self.rule = rule
        self.batch = 0
        self.allocated = empty_allocation(nodes)
        self._present = dict.fromkeys(range(nodes))  # in order; a node goes quickly
        self._retired: set[int] = set()
        self._frequencies = [1.0] * nodes
        self._times: list[float | None] = [None] * nodes

    @property
    def done(self) -> bool:
        """Whether all samples have been handed out."""
        return self.batch == self.batches

    @property
    def present(self) -> tuple[int, ...]:
        """The nodes that have neither left nor retired."""
        return tuple(self._present)

    def has(self, node: int) -> bool:
        """Return whether the node has neither left nor retired."""
        return node in self._present

    def first(self, frequencies: Sequence[float | None]) -> Allocation:
        """Hand out the first batch, by the frequency μ_j of each node (Eq. 2), in any unit.

        ``None``: it could not be read; the mean of the others is taken, and if none could be read, all are alike.

        Returns:
            the samples of the batch.
        """
        assert self.batch == 0, "the first batch has been handed out"
        assert len(frequencies) == self.nodes, (frequencies, self.nodes)
        known = [frequency for frequency in frequencies if frequency is not None]
        assert all(0 < frequency < math.inf for frequency in known), frequencies
        mean = fmean(known) if known else 1.0
        self._frequencies = [mean if frequency is None else frequency for frequency in frequencies]
        if self.rule is DivisionRule.PAPER:
            return self._hand_out(by_frequency, self._frequencies)
        return self._hand_out(harmonic, self._seconds(self._times))

    def next(self, seconds_per_sample: Sequence[float | None]) -> Allocation:
        """Hand out the next batch, by the time t̄_j that each node took for a sample in its last iteration (Eq. 3 to 5).

        Args:
            seconds_per_sample: for each node, over the samples that it really trained; see ``mean_times``. ``None``: it
                trained nothing, or has not finished yet. Then its previous time counts; without one, its frequency
                predicts its speed. Entries of nodes that have left or retired are ignored.

        Returns:
            the samples of the batch, without those of earlier ones.
        """
        assert 0 < self.batch < self.batches, f"{self.batch} of {self.batches} batches have been handed out"
        self.note(seconds_per_sample)
        return self._hand_out(self._rule, self._seconds(self._times))

    def leave(self, *nodes: int, seconds_per_sample: Sequence[float | None] | None = None) -> Allocation:
        """Remove ``nodes``; the others get their samples at once, by the rule and the latest times.

        Args:
            nodes: name together those that left together, so that none of them gets samples of another.
            seconds_per_sample: as for ``next``; by default what was known there.

        Returns:
            the samples that change hands.

        Raises:
            RunError: no node is left.
        """
        assert set(nodes) <= self._present.keys() | self._retired, (nodes, self._present)
        self.note(seconds_per_sample or [None] * self.nodes)
        self._drop(nodes)
        if not self._present:
            raise RunError(f"the last computing node has left; nobody can train the {self.samples} samples")
        self._retired -= set(nodes)
        freed = [run for node in sorted(set(nodes)) for run in self.allocated.runs[node]]
        self.allocated = self.allocated.without(nodes)
        return self._allocate(freed, self._rule, self._seconds(self._times))

    def redivided(self, seconds_per_sample: Sequence[float | None]) -> tuple[list[int], list[int], list[int]]:
        """Return the samples of each node, and those that it would have if all were divided again (Eq. 3 and 4).

        Each node keeps at least ``grain``.

        Args:
            seconds_per_sample: as for ``next``.

        Returns:
            the present nodes that have samples, the number that each has, and the number that it would have.
        """
        counts, grain = self.allocated.counts, self.grain
        nodes = [node for node in self._present if counts[node]]
        have, times = [counts[node] for node in nodes], self.seconds(seconds_per_sample)
        least, total = [1] * len(nodes), sum(have) // grain
        wanted = self._rule(total, least, [times[node] for node in nodes]) if nodes else []
        return nodes, have, [count * grain for count in wanted]

    def move(self, giver: int, taker: int, samples: int) -> tuple[Run, ...]:
        """Move the samples that ``giver`` got last to ``taker``; return them.

        Args:
            samples: a multiple of ``grain``; fewer than ``giver`` has.
        """
        assert samples % self.grain == 0 and 0 < samples < self.allocated.counts[giver], (giver, samples)
        kept, moved = deal(self.allocated.runs[giver], (self.allocated.counts[giver] - samples, samples)).runs
        change = {giver: kept, taker: moved}
        given = Allocation(tuple(change.get(node, ()) for node in range(self.nodes)))
        self.allocated = self.allocated.without([giver]).plus(given)
        return moved

    def retire(self, *nodes: int) -> None:
        """Give ``nodes`` no more samples; they keep what they have."""
        assert set(nodes) <= self._present.keys(), (nodes, self._present)
        self._retired.update(nodes)
        self._drop(nodes)

    def _drop(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._present.pop(node, None)

    def measured(self, node: int) -> float | None:
        """Return the time for a sample by which the samples were divided; ``None``: none was measured."""
        return self._times[node]

    def seconds(self, seconds_per_sample: Sequence[float | None]) -> list[float]:
        """Return t̄_j of each node as ``next`` would take it, without noting it; arguments as there."""
        return self._seconds(
            [old if new is None else new for new, old in zip(seconds_per_sample, self._times, strict=True)]
        )

    def note(self, seconds_per_sample: Sequence[float | None]) -> None:
        """Note the times by which the samples are divided; arguments as for ``next``."""
        assert len(seconds_per_sample) == self.nodes, (seconds_per_sample, self.nodes)
        for node in self._present:
            time = seconds_per_sample[node]
            if time is not None:
                assert 0 < time < math.inf, (node, time)
                self._times[node] = time

    @property
    def _rule(self) -> Divide:
        return as_printed if self.rule is DivisionRule.PAPER else harmonic

    def _hand_out(self, divide: Divide, measures: Sequence[float]) -> Allocation:
        start = self._handed_out()
        self.batch += 1
        return self._allocate([(start, self._handed_out())], divide, measures)

    def _handed_out(self) -> int:
        """Return the samples of the batches so far."""
        return self.samples if self.done else self.samples // self.grain // self.batches * self.batch * self.grain

    def _allocate(self, runs: Iterable[Run], divide: Divide, measures: Sequence[float]) -> Allocation:
        """Divide ``runs`` among the present nodes.

        Args:
            measures: one number for each node: seconds for a sample, or the frequency (first batch, as printed).
        """
        runs = [run for run in runs if run[0] < run[1]]
        counts, grain = self.allocated.counts, self.grain
        have = [counts[node] // grain for node in self._present]
        totals = divide(sum(have) + size(runs) // grain, have, [measures[node] for node in self._present])
        more = [0] * self.nodes
        for node, before, after in zip(self._present, have, totals, strict=True):
            more[node] = (after - before) * grain
        new = deal(runs, more)
        self.allocated = self.allocated.plus(new)
        return new

    def _seconds(self, times: Sequence[float | None]) -> list[float]:
        """Return t̄_j of each node: the measured one of ``times``, else the one that its frequency predicts."""
        measured = [(node, time) for node in self._present if (time := times[node]) is not None]
        per_hertz = 1.0  # speed for each unit of frequency
        if measured:
            speed = math.fsum(1 / time for _, time in measured)
            per_hertz = speed / math.fsum(self._frequencies[node] for node, _ in measured)
        return [
            1 / (per_hertz * frequency) if time is None else time
            for time, frequency in zip(times, self._frequencies, strict=True)
        ]


class Udpa(Idpa):
    """Uniform data partitioning and allocation: the counterpart of IDPA that takes all nodes to be equal.

    Args:
        batches: 1 as in the paper, which hands out all data at once.
        grain: see Idpa.
    """

    def __init__(self, samples: int, nodes: int, batches: int = 1, *, grain: int = 1) -> None:
        super().__init__(samples, nodes, batches, grain=grain)

    def first(self, frequencies: Sequence[float | None]) -> Allocation:
        """Hand out the first batch, in equal parts."""
        return super().first([None] * len(frequencies))

    def note(self, seconds_per_sample: Sequence[float | None]) -> None:
        """Ignore the times."""


def total_iterations(iterations: int, batches: int) -> int:
    """Return K' = A + ⌊K - (A+1)/2⌋, the iterations that train each sample about K times in the mean (Eq. 6).

    While the data are handed out, A iterations train N (A+1)/2 samples instead of N·A. (The paper simplifies the floor
    to K - A/2 - 1, which holds for even A.)

    Args:
        iterations: K.
        batches: A.
        A ≤ K. The paper demands A < K; with A = K there are no fewer iterations than batches either.
    """
    assert batches <= iterations, (batches, iterations)
    return batches + (2 * iterations - batches - 1) // 2


def work(passes: Fraction, batches: int) -> Fraction:
    """Return how often the whole data set has been trained, on average, after ``passes`` of every node.

    Pass a is over a of A parts while the data are handed out, then over all of them: Σ min(a, A) / A, as in Eq. 6.
    """
    whole = min(passes.numerator // passes.denominator, batches)
    part = passes - whole
    return Fraction(whole * (whole + 1), 2 * batches) + part * Fraction(min(whole + 1, batches), batches)
