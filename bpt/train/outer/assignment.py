"""Assignment: what the main server tells every worker before training begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from bpt.data.shipped import Header
from bpt.parallel.outer.idpa import work


@dataclass(frozen=True)
class Assignment:
    """The data of a run that all workers need.

    Attributes:
        seed: of everything random.
        first: the solver's iteration at which the run begins: 0, or that of a snapshot.
        iterations: that one process would train.
        total: K', the passes of each worker.
        gradients: whether gradients are submitted (ASGD), not weights.
        weigh: whether Q counts.
        after: whether Q is of the weights at the end of an epoch, not of each iteration's.
        engines: worker → memory layout and inner engine, of those that an earlier run has settled on.
        headers: of each data layer whose records the server sends, by name.
        batches: A, the parts in which the samples are handed out.
        elements, trained, dtype: of the flat weights; see FlatWeights.
    """

    seed: int
    first: int
    iterations: int
    total: Fraction
    gradients: bool
    weigh: bool = True
    after: bool = False
    engines: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    headers: Mapping[str, Header] = field(default_factory=dict)
    batches: int = 1
    elements: int = 0
    trained: int = 0
    dtype: str = "float32"

    def iteration(self, passes: Fraction) -> int:
        """Return the solver's iteration after ``passes``, which learning rates follow.

        It is the part of all samples that is trained, not of all passes: the first ones of IDPA are short, and after
        half of them far less than half of the work is done.
        """
        return self.first + int(self.epochs(min(passes, self.total)) * self.iterations / self.epochs(self.total))

    def epochs(self, passes: Fraction) -> Fraction:
        """Return how often the whole data set has been trained after ``passes``, by ``work``."""
        return work(passes, self.batches)
