"""Parameters of a net in two segments, on one of several ranks, for tests of exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import nn

from bpt.parallel.exchange import Bucket, Exchange
from bpt.system.comm.base import Communicator
from bpt.system.comm.comm_thread import CommThread
from bpt.system.device import CPU

SEGMENTS = (("a", "b"), ("c",))


class Rank:
    """Parameters with weights that tell rank and name, and an exchange of ``kind`` that has them in its buckets."""

    SIZES: ClassVar[Mapping[str, int]] = {"a": 3, "b": 2, "c": 4}

    def __init__(
        self,
        comm: Communicator,
        kind: Callable[..., Exchange],
        segments: Sequence[Sequence[str]] = SEGMENTS,
        sizes: Mapping[str, int] = SIZES,
        device: torch.device = CPU,
    ) -> None:
        self.comm = comm
        self.parameters = {
            name: nn.Parameter(torch.full((size,), 100.0 * comm.rank + number))
            for number, (name, size) in enumerate(sizes.items())
        }
        self._own = comm.Dup()
        self.bucket_of = self._buckets(segments)
        self.comm_thread = CommThread(comm)
        self.exchange = kind([[bucket] for bucket in self.bucket_of.values()], self.comm_thread, device)

    def _buckets(self, segments: Sequence[Sequence[str]]) -> dict[tuple[str, ...], Bucket]:
        return {
            names: Bucket([(name, self.parameters[name]) for name in names], self._own)
            for names in map(tuple, segments)
        }

    def cut(self, segments: Sequence[Sequence[str]]) -> None:
        """Go on with other segments."""
        self.bucket_of = self._buckets(segments)
        self.exchange.regroup([[bucket] for bucket in self.bucket_of.values()])

    def give(self, **gradients: float | None) -> None:
        """Let the parameters have gradients that are all alike."""
        for name, gradient in gradients.items():
            parameter = self.parameters[name]
            parameter.grad = None if gradient is None else torch.full_like(parameter, gradient)

    def run(self) -> None:
        """What the instructions ``X1 X0 W`` do."""
        for segment in reversed(range(len(self.bucket_of))):
            self.exchange.start(segment)
        self.exchange.wait()

    @property
    def gradients(self) -> dict[str, list[float] | None]:
        return {name: None if p.grad is None else p.grad.tolist() for name, p in self.parameters.items()}

    @property
    def weights(self) -> dict[str, list[float]]:
        return {name: parameter.tolist() for name, parameter in self.parameters.items()}
