"""Coded submissions: the changes of a worker's weights travel as codes, with error feedback on the worker.

Most weights hardly change between two submissions. So the code is that of their difference from the version that the
worker has received, which the server knows. The worker adds the part that a code leaves out to its next difference (as
Stich et al. 2018 do with gradients, and Basu et al., Qsparse-local-SGD, 2019, with local steps)::

    c = w - base + e          the difference to send
    e = c - D(C(c))           the part that the code C(c) leaves out
    base + D(C(c))            the server's copy of the worker's weights

Gradients (ASGD) are coded directly. Blobs that passes update, such as a BatchNorm's statistics, travel uncoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bpt.config.plan.run_plan import ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange.codec.feedback import code_of
from bpt.parallel.exchange.transport.coded import Code
from bpt.system.comm.base import Buffer


@dataclass(frozen=True)
class Coding:
    """The coding of a span of a worker's flat weights or gradients (FlatWeights).

    Attributes:
        code: the code of the trained elements.
        elements, trained: numbers of all elements and of trained elements in the span; the trained ones come first.
        dtype: the type of the elements.
        differs: whether the difference from a base is coded.
    """

    code: Code
    elements: int
    trained: int
    dtype: np.dtype[np.generic]
    differs: bool

    @property
    def nbytes(self) -> int:
        """The bytes of a submission."""
        return self.code.size(self._front()) + (self.elements - self.trained) * self.dtype.itemsize

    def encode(self, values: Buffer, base: Buffer | None, rest: Tensor) -> Buffer:
        """Return the bytes of ``values``.

        Args:
            base: the version from which training began, if differences are coded.
            rest: (trained,) the part that earlier codes have left out; this call updates it.
        """
        told = torch.from_numpy(values[: self.trained]) + rest
        if self.differs:
            assert base is not None
            told -= torch.from_numpy(base[: self.trained])
        code = self.code.encode(told)
        torch.sub(told, self.code.decode(code, told), out=rest)
        rest.nan_to_num_(0.0, 0.0, 0.0)  # the worker may have diverged; it now gets other weights
        return np.concatenate([code.numpy(), values[self.trained :].view(np.uint8)])

    def decode(self, received: Buffer, base: Buffer | None) -> Buffer:
        """Return the values from the bytes of ``encode``."""
        values = np.empty(self.elements, self.dtype)
        front = torch.from_numpy(values)[: self.trained]
        size = self.code.size(front)
        front.copy_(self.code.decode(torch.from_numpy(received[:size].copy()), front))
        if self.differs:
            assert base is not None
            front += torch.from_numpy(base[: self.trained])
        values[self.trained :].view(np.uint8)[:] = received[size:]
        return values

    def _front(self) -> Tensor:
        return torch.from_numpy(np.empty(self.trained, self.dtype))


Coded = Callable[[int, int, slice], Coding | None]
"""Returns the coding of a worker's submission to another rank for a span of the flat weights; ``None``: no codec."""


def codings(param: ParallelSpec, hosts: Sequence[str], trained: int, dtype: np.dtype[np.generic]) -> Coded:
    """Return the codes of submissions between ranks on these ``hosts``, by ``compression_param``.

    Args:
        trained: number of trained elements, which are at the front of the flat weights.
        dtype: the type of the elements.
    """
    compression = param.compression_param
    code = code_of(compression)
    everywhere = compression.links == pb.CompressionParameter.ALL

    def coding(worker: int, holder: int, span: slice) -> Coding | None:
        if code is None or not (everywhere or hosts[worker] != hosts[holder]):
            return None
        elements = span.stop - span.start
        front = min(max(trained - span.start, 0), elements)
        differs = param.exchange != pb.ParallelParameter.ASGD
        return Coding(code, elements, front, dtype, differs) if front else None

    return coding


def identity_codec(worker: int, holder: int, span: slice) -> None:
    """Return ``None``: submissions travel uncoded."""
