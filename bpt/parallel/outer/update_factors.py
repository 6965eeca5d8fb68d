"""The factors of local weights in the global ones: SGWU (BPT-CNN, Eq. 7) and AGWU (Eq. 9 and 10).

These are factors only; GlobalWeights applies them. Accuracies Q_j are of the local epoch that was just trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Normalizer(Enum):
    """The set that the sum in Eq. 9 runs over.

    OTHERS: all workers but the one that submits, as printed; γ may exceed 1, with two workers it is up to e. ALL: all
    of them, so γ < 1.
    """

    OTHERS = "OTHERS"
    ALL = "ALL"


@dataclass(frozen=True)
class AgwuUpdate:
    """One update of the global weights by AGWU (Eq. 10): W^(i) = W^(i-1) + factor · (W_j^(k) - W^(k)).

    Attributes:
        worker: j, who submitted.
        base: k, the version that it trained from.
        newest: i-1, the newest version before the update.
        gamma: γ_j^(k), Eq. 9.
        accuracy: Q_j^(k).
        share: n_j m / N, the worker's samples as a multiple of what a worker has in the mean; 1 in the paper.
        damping: the factor by its staleness, under ``staleness: INVERSE``; 1 in the paper.
    """

    worker: int
    base: int
    newest: int
    gamma: float
    accuracy: float
    share: float = 1.0
    damping: float = 1.0

    @property
    def version(self) -> int:
        """The version i that the update makes."""
        return self.newest + 1

    @property
    def staleness(self) -> int:
        """The number of versions that others made since the worker got its base."""
        return self.newest - self.base

    @property
    def factor(self) -> float:
        """The product γ · Q · share · damping."""
        return self.gamma * self.accuracy * self.share * self.damping

    @property
    def replaces(self) -> bool:
        """Whether W^(i) is W_j^(k) itself, which is then copied, since ``a + (b - a)`` rounds.

        So one worker with Q = 1 trains exactly as without a parameter server.
        """
        return self.staleness == 0 and self.factor == 1.0


def sgwu_factors(accuracies: Sequence[float], samples: Sequence[int] = ()) -> tuple[float, ...]:
    """Return Q_j / Σ Q, the factors of the workers' weights in W^(i) = Σ_j factor_j · W_j (Eq. 7).

    If all are equal, also if all are 0, where Eq. 7 divides by zero, the factors are 1/m.

    Args:
        samples: n_j of each worker, which then count as well: Q_j n_j / Σ Q n. In the paper they do not.
    """
    assert accuracies and all(0 <= accuracy < math.inf for accuracy in accuracies), accuracies
    if samples and sum(samples):
        none_counts = not any(q and n for q, n in zip(accuracies, samples, strict=True))
        accuracies = [(1.0 if none_counts else q) * n for q, n in zip(accuracies, samples, strict=True)]
    if min(accuracies) == max(accuracies):
        return (1 / len(accuracies),) * len(accuracies)
    together = math.fsum(accuracies)
    return tuple(accuracy / together for accuracy in accuracies)


def recency(base: int, newest: int) -> float:
    """Return e^(k/(i-1)): from 1 for the oldest possible base to e for the newest."""
    return math.exp(base / newest) if newest else 1.0


def gamma(base: int, newest: int, others: float, normalizer: Normalizer) -> float:
    """Return γ of Eq. 9, where the recencies of the others add up to ``others`` (0: there are none)."""
    if not others:
        return 1.0
    mine = recency(base, newest)
    return mine / (others + mine if normalizer is Normalizer.ALL else others)
