"""Codecs that write numbers as bytes, message by message, with error feedback."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.exchange.codec.base import Codec, joined, parted
from bpt.exchange.transport.coded import Code
from bpt.exchange.transport.transport import Transport


class Feedback(Codec):
    """A ``code``, and for each parameter a residual of its size: what this rank's codes have not told so far."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._residuals: dict[str, Tensor] = {}

    def _sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        tensors = list(gradients.values())
        values = joined(tensors)
        lost = joined(self._residual(name, gradient) for name, gradient in gradients.items())
        values += lost
        transport.sum_coded(comm, values, lost, self._code)
        for gradient, total in zip(tensors, parted(values, tensors), strict=True):
            gradient.copy_(total)
        self._residuals.update(zip(gradients, parted(lost, tensors), strict=True))

    def state(self) -> Mapping[str, Tensor]:
        return dict(self._residuals)

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._residuals = dict(state)

    def _residual(self, name: str, gradient: Tensor) -> Tensor:
        kept = self._residuals.get(name)
        return torch.zeros_like(gradient) if kept is None else kept.to(gradient.dtype)
