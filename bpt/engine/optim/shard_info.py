"""ShardInfo: what an update rule must know of other ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bpt.engine.optim.gradients import LearnableParam

Numbers = Mapping[str, Sequence[float]]
"""Equally many numbers of each parameter, by its name."""


@dataclass(frozen=True)
class ShardInfo:
    """The facts that a rule needs about other ranks that update parts of the same net.

    Attributes:
        frozen: ``id`` of the parameters that another rank updates.
        counted: ``id`` of the parameters that this rank counts in the norm of all gradients; ``None``: all.
        total: returns the sum of a number over the ranks that hold one net together; a collective call.
        totals: returns the sums of numbers of parameters over the ranks that hold slices of them, given how many
            numbers each has; a collective call. A rank leaves out what it does not count.
        updates: whether any of these ranks updates anything. All have the same answer, since an update may need a
            ``total``.
    """

    frozen: frozenset[int] = frozenset()
    counted: frozenset[int] | None = None
    total: Callable[[float], float] = lambda value: value
    totals: Callable[[Numbers, int], Numbers] = lambda numbers, columns: numbers
    updates: bool = True

    def counts(self, parameter: LearnableParam) -> bool:
        """Return whether this rank counts the parameter in the norm of all gradients."""
        return self.counted is None or id(parameter.value) in self.counted


ALONE = ShardInfo()
