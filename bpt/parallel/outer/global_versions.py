"""Versions: which version of the global weights each worker trains from, under AGWU (BPT-CNN, section 3.3.2)."""

from __future__ import annotations

import math
from collections import deque
from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul

from bpt.parallel.outer.update_factors import AgwuUpdate, Normalizer, gamma

TERMS = 19  # of the series of e^x for x in [0, 1]; the rest is below 1e-17


class Versions:
    """Numbers the versions of the global weights from 0, and gives each update its factor.

    A worker trains from its base version. ``submit`` makes the next version, which the worker gets in return, as in
    Alg. 3.2. A worker that has died leaves: Eq. 9 no longer counts it, and none waits for it. One that has finished
    retires: none waits for it, but Eq. 9 counts it until all others train from weights that include its updates. If
    it did not, the last updates of nodes that end together would add up to several times what one of them has learnt.

    With ``max_staleness``, no update is ever staler. An update that would make this impossible for workers with older
    bases is held until they have submitted: ``may_submit`` tells, and has to be asked again after each update and when
    a worker leaves. The worker with the oldest base may always submit, so the run never stands still, and no work is
    thrown away. The least bound, m-1, makes workers submit in turn. (In the paper, staleness is unbounded.)

    Args:
        workers: m; they are numbered from 0 and all start with version 0.
        max_staleness: 0: unbounded; otherwise at least m-1: of workers that start together the last is as stale.
        normalizer: of Eq. 9.

    Attributes:
        newest: i-1, the newest version.
    """

    def __init__(self, workers: int, max_staleness: int = 0, normalizer: Normalizer = Normalizer.OTHERS) -> None:
        assert workers >= 1 and (max_staleness == 0 or max_staleness >= workers - 1), (workers, max_staleness)
        self.newest = 0
        self._max_staleness = max_staleness
        self._normalizer = normalizer
        self._bases = dict.fromkeys(range(workers), 0)
        self._sums = _Recencies()
        self._retired: deque[tuple[int, int]] = deque()  # of each: the newest version when it retired, its base
        for base in self._bases.values():
            self._sums.add(base)

    @property
    def workers(self) -> tuple[int, ...]:
        """The workers that have neither left nor retired."""
        return tuple(sorted(self._bases))

    def base(self, worker: int) -> int:
        """Return k, the version that ``worker`` trains from."""
        return self._bases[worker]

    def staleness(self, worker: int) -> int:
        """Return the number of versions that ``worker`` has not seen."""
        return self.newest - self._bases[worker]

    def may_submit(self, worker: int) -> bool:
        """Return whether the weights of ``worker`` may be applied now; always, if staleness is unbounded."""
        if not self._max_staleness:
            return True
        # Those with older bases, submitting one after the other from the oldest on, must all stay within the bound. The
        # rest of the workers does so anyway: there is one update less before them, and one more has been made.
        mine = self._bases[worker]
        older = sorted(base for base in self._bases.values() if base < mine)
        return all(self.newest + 1 + before - base <= self._max_staleness for before, base in enumerate(older))

    def submit(
        self, worker: int, accuracy: float = 1.0, fetches: bool = True, share: float = 1.0, damping: float = 1.0
    ) -> AgwuUpdate:
        """Make the next version from what ``worker`` has trained; it then trains from that.

        Args:
            accuracy: Q, of the local epoch that it trained.
            fetches: whether it gets the new version; otherwise its base stays what it is (ASGD).
            share, damping: see AgwuUpdate.

        Returns:
            what to do to the global weights (Eq. 9 and 10).
        """
        assert 0 <= accuracy < math.inf, accuracy
        assert self.may_submit(worker), f"worker {worker} has to wait: others would get staler than the bound"
        base = self._bases[worker]
        self._sums.remove(base)
        factor = gamma(base, self.newest, self._sums.at(self.newest), self._normalizer)
        update = AgwuUpdate(worker, base, self.newest, factor, accuracy, share, damping)
        self.newest = update.version
        if fetches:
            self._rebase(worker)
        else:
            self._sums.add(base)
        assert not self._max_staleness or update.staleness <= self._max_staleness, update
        return update

    def fetch(self, worker: int) -> int:
        """Give ``worker`` the newest version without a submission; return its number."""
        self._sums.remove(self._bases[worker])
        self._rebase(worker)
        return self.newest

    def join(self, worker: int) -> int:
        """Start ``worker``, which has left or is new, from the newest version; return its number."""
        assert worker not in self._bases, worker
        self._bases[worker] = self.newest
        self._sums.add(self.newest)
        return self.newest

    def leave(self, worker: int) -> None:
        """Remove ``worker``, which has died."""
        self._sums.remove(self._bases.pop(worker))
        self._forget()

    def retire(self, worker: int) -> None:
        """Retire ``worker``, which has finished."""
        self._retired.append((self.newest, self._bases.pop(worker)))
        self._forget()

    def _rebase(self, worker: int) -> None:
        """Let ``worker``, which is in no sum now, train from the newest version."""
        del self._bases[worker]  # so that bases stay in order: the oldest comes first
        self._bases[worker] = self.newest
        self._sums.add(self.newest)
        self._forget()

    def _forget(self) -> None:
        """Drop retired workers from the sum once all others have begun anew."""
        while self._retired and self._retired[0][0] <= next(iter(self._bases.values()), self.newest):
            self._sums.remove(self._retired.popleft()[1])


class _Recencies:
    """The sums Σ e^(k/n) over the base versions k, for any n, in a time independent of the number of workers.

    By the series of e^x: Σ_p (Σ_k k^p) / (n^p p!). The sums of powers are whole numbers, so nothing is lost when
    bases come and go.
    """

    def __init__(self) -> None:
        self._powers = [0] * TERMS
        self._factorials = [math.factorial(term) for term in range(TERMS)]

    def add(self, base: int) -> None:
        self._powers = [a + b for a, b in zip(self._powers, _powers(base), strict=True)]

    def remove(self, base: int) -> None:
        self._powers = [a - b for a, b in zip(self._powers, _powers(base), strict=True)]

    def at(self, newest: int) -> float:
        """Return the sum for n = ``newest``; k/n counts as 0 at n = 0."""
        if not newest:
            return float(self._powers[0])
        parts = zip(self._powers, _powers(newest), self._factorials, strict=True)
        return math.fsum(sums / (power * factorial) for sums, power, factorial in parts)


@lru_cache(maxsize=16)  # a version is the newest, and then the base of who gets it
def _powers(number: int) -> list[int]:
    """Return number^0, number^1, and so on."""
    return list(accumulate(repeat(number, TERMS - 1), mul, initial=1))
