"""What ASGD and AGWU do with a submission from weights that others have changed meanwhile (``staleness``).

INVERSE: W. Zhang, S. Gupta, X. Lian, J. Liu: Staleness-aware async-SGD for distributed deep learning. IJCAI 2016.
COMPENSATE: S. Zheng et al.: Asynchronous stochastic gradient descent with delay compensation (DC-ASGD). ICML 2017.
DISCARD: Ringmaster ASGD (arXiv 2501.16168). TABLE: Ringleader ASGD (arXiv 2509.22860), made for nodes that keep their
own samples. Ringleader waits until every node has an entry of its table, then updates once for each. Here an update
follows each submission, over the entries that there are, so that no worker waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bpt.config.plan.run_plan import AgwuSpec
from bpt.config.proto import bpt_pb2 as pb

_Rule = pb.AgwuParameter


@dataclass(frozen=True)
class Correction:
    """The correction of one submission.

    Attributes:
        compensation: λ of g + λ g ⊙ g ⊙ (w_now - w_then), with a gradient g; 0: none.
        table: the workers whose newest submissions count, and the weight of each; empty: only the submission itself.
    """

    compensation: float = 0.0
    table: tuple[tuple[int, float], ...] = ()


AS_SUBMITTED = Correction()


class StalenessRule:
    """Decides how submissions count.

    Args:
        param: ``agwu_param``.
        workers: m.
        fresh: the staleness up to which INVERSE changes nothing: 1, as in the paper. AGWU passes m - 1, the staleness
            of equally fast workers, because Eq. 9 already divides by it.
    """

    def __init__(self, param: AgwuSpec, workers: int, fresh: int = 1) -> None:
        self._param = param
        self._fresh = max(fresh, 1)
        self._limit = param.staleness_limit or 2 * workers
        self._table: set[int] = set()

    def discards(self, staleness: int) -> bool:
        """Return whether a submission is dropped."""
        return self._param.staleness == _Rule.DISCARD and staleness >= self._limit

    def damping(self, staleness: int) -> float:
        """Return the factor of a submission."""
        if self._param.staleness != _Rule.INVERSE:
            return 1.0
        return self._fresh / max(staleness, self._fresh)

    def correction(self, worker: int, share: Callable[[int], float], iterations: int = 1) -> Correction:
        """Return the correction of a submission.

        Args:
            share: returns a worker's samples as a multiple of those of a worker in the mean.
            iterations: whose gradients it is the sum of.
        """
        if self._param.staleness == _Rule.COMPENSATE:
            return Correction(self._param.compensation / iterations)
        if self._param.staleness != _Rule.TABLE:
            return AS_SUBMITTED
        self._table.add(worker)
        return Correction(table=tuple((each, share(each) / len(self._table)) for each in sorted(self._table)))

    def remember(self, *workers: int) -> None:
        """Continue with a table that has entries of these workers."""
        self._table.update(workers)

    def forget(self, worker: int) -> None:
        """Drop a lost worker's entry of the table."""
        self._table.discard(worker)
