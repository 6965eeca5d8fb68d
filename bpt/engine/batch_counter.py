"""BatchCounter: the numbers of the batches of a run, and the iterations in which they began."""

from __future__ import annotations


class BatchCounter:
    """Counts batches from the iteration on at which the run began; iterations may be renumbered meanwhile.

    Args:
        delay: iterations between a batch's forward pass and its backward pass.

    Attributes:
        batch: the batch that begins in the iteration under way.
        first: the first batch of the run.
    """

    def __init__(self, delay: int) -> None:
        self.batch = self.first = 0
        self._delay = delay
        self._iterations: dict[int, int] = {}  # of batches whose gradients may be to come
        self._next = -1  # the iteration that continues the run; none does if this is negative

    def begin(self, iteration: int) -> bool:
        """Count the batch of an iteration; return whether it continues the run, so that older batches come back."""
        continues = iteration == self._next
        if continues:
            self.batch += 1
        else:
            self.batch = self.first = iteration
            self._iterations.clear()
        self._next = iteration + 1
        self._iterations[self.batch] = iteration
        self._iterations.pop(self.batch - 1 - self._delay, None)
        return continues

    def iteration_of(self, batch: int) -> int:
        """Return the iteration of the solver in which a batch began."""
        return self._iterations[batch]

    def renumber(self, iteration: int) -> None:
        """Let the run that is under way, if one is, continue with the iteration of this number."""
        if self._next >= 0:
            self._next = iteration

    def forget(self) -> None:
        """Let no iteration continue the run, whatever its number."""
        self._next = -1
