"""Submissions that travel as codes: what a worker has changed, with error feedback on the worker.

Not weights are coded, most of which hardly change from one submission to the next, but their difference to the version
that the worker has got, which the server knows. What a code leaves out the worker adds to its next difference (as
Stich et al. 2018 do with gradients; of local steps, Basu et al., Qsparse-local-SGD, 2019)::

    c = w - base + e          what is to be told
    e = c - D(C(c))           what the code C(c) does not tell
    base + D(C(c))            what the server takes for the worker's weights

Gradients (ASGD) are coded as they are. Blobs that passes leave, such as a BatchNorm's statistics, travel uncoded.
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
    """The code of a worker's span of flat weights or gradients (FlatWeights) on its way.

    Attributes:
        code: of the elements that are trained.
        elements, trained: of the stretch; those that are trained come first.
        dtype: of the elements.
        differs: what is coded is the difference to a base.
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
            base: the version that they were trained from, if that counts.
            rest: of ``trained`` elements, what earlier codes have not told; becomes what none has told now.
        """
        told = torch.from_numpy(values[: self.trained]) + rest
        if self.differs:
            assert base is not None
            told -= torch.from_numpy(base[: self.trained])
        code = self.code.encode(told)
        torch.sub(told, self.code.decode(code, told), out=rest)
        rest.nan_to_num_(0.0, 0.0, 0.0)  # of a worker that has diverged, and gets other weights now
        return np.concatenate([code.numpy(), values[self.trained :].view(np.uint8)])

    def decode(self, received: Buffer, base: Buffer | None) -> Buffer:
        """Return the values that ``encode`` has written."""
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
"""The codec of a worker's submission to another rank, for a stretch of the flat weights; ``None``: no codec."""


def codings(param: ParallelSpec, hosts: Sequence[str], trained: int, dtype: np.dtype[np.generic]) -> Coded:
    """Return the codes of submissions between ranks on these ``hosts``, by ``compression_param``.

    Args:
        trained: how many elements at the front of all weights are trained.
        dtype: of the elements.
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
    """Return no coding: submissions travel as they are."""
