"""Codecs that write numbers as bytes, message by message, with error feedback."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.parallel.exchange.codec.base import CODECS, Codec
from bpt.parallel.exchange.flat import flatten, unflatten
from bpt.parallel.exchange.transport.coded import Code
from bpt.parallel.exchange.transport.transport import Transport
from bpt.system.comm.base import Communicator

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import CompressionSpec


class Feedback(Codec):
    """A codec by a ``code``, with a residual of each parameter: what this rank's codes have left out so far."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._residuals: dict[str, Tensor] = {}

    def _sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        tensors = list(gradients.values())
        values = flatten(tensors)
        lost = flatten(self._residual(name, gradient) for name, gradient in gradients.items())
        values += lost
        transport.sum_coded(comm, values, lost, self.code)
        for gradient, total in zip(tensors, unflatten(values, tensors), strict=True):
            gradient.copy_(total)
        self._residuals.update(zip(gradients, unflatten(lost, tensors), strict=True))

    def coded_bytes(self, shape: Sequence[float], itemsize: int) -> float:
        return math.prod(shape) * self.code.bytes_each(itemsize)

    def state(self) -> Mapping[str, Tensor]:
        return dict(self._residuals)

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals = dict(state)

    def _residual(self, name: str, gradient: Tensor) -> Tensor:
        residual = self._residuals.get(name)
        return torch.zeros_like(gradient) if residual is None else residual.to(gradient.dtype)


def code_of(param: CompressionSpec) -> Code | None:
    """Return the code of a codec, for a sender to one receiver, where nothing is summed on the way.

    ``None``: there is no codec, or it is made of sums (POWERSGD).
    """
    codec = CODECS[param.name](param) if param.name else None
    return codec.code if isinstance(codec, Feedback) else None
