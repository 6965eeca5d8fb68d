"""Codec: what sums gradients over ranks with fewer bytes than they have, and the registry of codecs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.base.registry import Registry
from bpt.parallel.exchange.transport.transport import Transport
from bpt.system.comm.base import Communicator

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import CompressionSpec


class Codec(ABC):
    """Sums gradients over ranks with error feedback: a rank adds what was left out to its next gradient.

    This is error feedback (Stich et al. 2018; Karimireddy et al. 2019): over all iterations the sums that came out, and
    what ranks still keep, add up to what went in. What is kept goes by parameter, so messages may be cut anew.

    Where losses are multiplied by a scale that changes, ``begin`` tells it: what is coded and kept are true gradients,
    whatever the scale. One that is not finite makes sums that are not, on all ranks; the update is left out then, and
    ``undo`` takes back what the codes of that iteration have told.

    Made of the settings in ``compression_param``.

    Attributes:
        passes: how often all numbers of gradients are read or written, or what takes as long as that; a guess, for
            forecasts where nobody has measured it.
    """

    passes: float
    _scale = 1.0
    _before: Mapping[str, Tensor] | None = None

    def begin(self, scale: float) -> None:
        """Begin an iteration whose gradients are multiplied by ``scale``, a power of two."""
        self._scale, self._before = scale, self.state()

    def undo(self) -> None:
        """Restore the state before the last iteration, whose update is left out."""
        assert self._before is not None
        self.load(self._before)

    def sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        """Set ``gradients`` to their sums over ``comm``, on the ranks where ``transport`` puts them; a collective call.

        Args:
            gradients: by parameter, in one order on all ranks; contiguous, on the host, written in place.
        """
        if self._scale != 1:
            torch._foreach_mul_(list(gradients.values()), 1 / self._scale)
        self._sum(gradients, comm, transport)
        if self._scale != 1:
            torch._foreach_mul_(list(gradients.values()), self._scale)

    @abstractmethod
    def _sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        """Sum true (unscaled) gradients; ``sum`` calls this."""

    @abstractmethod
    def coded_bytes(self, shape: Sequence[float], itemsize: int) -> float:
        """Return the bytes that a gradient of ``shape`` has on its way, for forecasts.

        Args:
            itemsize: bytes of a number without a codec.
        """

    @abstractmethod
    def state(self) -> Mapping[str, Tensor]:
        """Return what this rank keeps, by names that begin with the parameter's; it is never written to afterwards."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a ``state()``; what it does not name starts anew."""


CODECS: Registry[Callable[[CompressionSpec], Codec]] = Registry(
    "codec",
    {
        "bpt.parallel.exchange.codec.half_codec": ("BF16", "FP16"),
        "bpt.parallel.exchange.codec.top_k": ("TOPK",),
        "bpt.parallel.exchange.codec.power_sgd": ("POWERSGD",),
    },
)
