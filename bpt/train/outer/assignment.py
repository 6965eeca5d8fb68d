"""Assignment: the data that the main server sends to all workers before training begins."""

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
        seed: the seed of all random numbers.
        first: the solver's iteration at which the run begins: 0, or that of a snapshot.
        iterations: the number of iterations that one process would train.
        total: K', the passes of each worker.
        gradients: whether workers submit gradients (ASGD) and not weights.
        weigh: whether Q counts.
        after: whether Q is that of the weights at the end of an epoch, and not of each iteration's weights.
        engines: worker → memory layout and inner engine, if an earlier run has chosen them.
        headers: the header of each data layer whose records the server sends, by name.
        batches: A, the number of batches in which the samples are assigned.
        elements, trained, dtype: properties of the flat weights (see FlatWeights).
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
        """Return the solver's iteration after ``passes``, from which the learning rate follows.

        It depends on the fraction of all samples that have been trained, and not of all passes: IDPA's first passes are
        short, so after half of them far less than half of the work is done.
        """
        return self.first + int(self.epochs(min(passes, self.total)) * self.iterations / self.epochs(self.total))

    def epochs(self, passes: Fraction) -> Fraction:
        """Return the number of epochs of the whole data set after ``passes``, by ``work``."""
        return work(passes, self.batches)
