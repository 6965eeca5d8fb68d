"""Finish: when all nodes of an asynchronous run end, if they are to end together."""

from __future__ import annotations

import math


class Finish:
    """Divides the remaining work by the measured speeds, so that the last passes of all nodes end at one moment.

    In the paper every node makes K' passes, so an error in IDPA's last division accumulates over the remaining passes,
    and nodes idle at the end. Here some make a little more and others a little less, while the samples trained
    together stay the same. Each node's clock is the time that it has computed and waited.

    It is fed by node, with sums kept up, so that it takes no longer with 10,000 nodes.
    """

    def __init__(self) -> None:
        self._terms: dict[int, tuple[float, float, float]] = {}
        self._sums = [0.0, 0.0, 0.0]  # samples a second; that times the clock; samples to train
        self._owed = 0.0  # samples that settled nodes leave to the others, less those that they train for others

    def __len__(self) -> int:
        """Return the number of known nodes that have not settled yet."""
        return len(self._terms)

    def __contains__(self, node: int) -> bool:
        """Return whether the node is known, and has not settled."""
        return node in self._terms

    def note(self, node: int, seconds_per_sample: float, clock: float, left: float) -> None:
        """Note the speed, the clock and the remaining samples of a node.

        Args:
            seconds_per_sample: that it takes, waiting included.
            clock: seconds that it has computed and waited.
            left: samples that it would train from then on by the paper, in all passes together.
        """
        self.forget(node)
        self._terms[node] = 1 / seconds_per_sample, clock / seconds_per_sample, left
        self._sums = [total + term for total, term in zip(self._sums, self._terms[node], strict=True)]

    def forget(self, node: int) -> None:
        """Drop a node that is lost or settled."""
        terms = self._terms.pop(node, None)
        if terms:
            self._sums = [total - term for total, term in zip(self._sums, terms, strict=True)]

    def samples(self, node: int) -> float:
        """Return how many samples the node trains until the common end; 0 if its end is past."""
        rate, at, _ = self._terms[node]
        speed, clocks, left = self._sums
        moment = (left + self._owed + clocks) / speed
        return max(0.0, math.fsum([moment * rate, -at]))

    def owe(self, samples: float) -> None:
        """Add ``samples`` that nobody would train otherwise; if negative, they are trained already."""
        self._owed += samples

    def settle(self, node: int, samples: float) -> None:
        """Let the node train ``samples`` from its clock on, and then end."""
        self._owed += self._terms[node][2] - samples
        self.forget(node)
