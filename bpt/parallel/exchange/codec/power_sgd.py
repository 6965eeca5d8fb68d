"""POWERSGD: gradients as products of two thin matrices (Vogels, Karimireddy and Jaggi 2019, algorithms 1 and 2)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.parallel.exchange.codec.base import CODECS, Codec
from bpt.parallel.exchange.flat import flatten, unflatten
from bpt.parallel.exchange.transport.transport import Transport
from bpt.system.comm.base import Communicator

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import CompressionSpec

_FACTOR, _BEGUN = " factor", " iterations"  # behind a parameter's name, in a state


@CODECS.register("POWERSGD")
class PowerSgd(Codec):
    """A codec by low-rank products: one step of a power iteration for each gradient, from the last iteration's.

    A gradient of shape (n, …) is a matrix M of n rows and m columns. With Q (m × r) of the last iteration

        P = Σ M Q over the ranks,  P̂ = an orthonormal basis of P's columns,  Q = Σ Mᵀ P̂ over the ranks,

    the sum of all M is taken to be P̂ Qᵀ. Only P and Q travel, r (n + m) numbers in place of n m. It is exact where the
    sum's rank is r at most. A rank keeps M - P̂ P̂ᵀ M, and adds it to its next M.

    What is not smaller so, such as a bias, travels as it is, and so do all gradients in the first ``warm_up``
    iterations, in which their directions still change quickly.

    Rank 0 alone makes P̂, and P̂ Qᵀ is added up column by column: unlike machines round products of matrices in other
    ways, and the ranks' weights would part.
    """

    def __init__(self, param: CompressionSpec) -> None:
        self._rank = param.rank
        self.passes = 12 + 5 * param.rank  # four products, of which the last goes column by column
        self._warm_up = param.warm_up
        self._residuals: dict[str, Tensor] = {}
        self._factors: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}  # iterations, up to warm_up

    def _sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        matrices = {name: self._matrix(name, each) for name, each in gradients.items() if self._begins(name, each)}
        whole = [gradient for name, gradient in gradients.items() if name not in matrices]
        bases = self._bases(matrices, comm, transport) if matrices else {}
        rights = {name: matrix.t() @ bases[name] for name, matrix in matrices.items()}
        for name, matrix in matrices.items():
            self._residuals[name] = (matrix - bases[name] @ rights[name].t()).view(gradients[name].shape)
        tensors = [*whole, *rights.values()]
        row = flatten(tensors)
        transport.sum(comm, row.numpy())
        totals = unflatten(row, tensors)
        for gradient, total in zip(whole, totals, strict=False):
            gradient.copy_(total)
        for name, right in zip(matrices, totals[len(whole) :], strict=True):
            self._factors[name] = right.clone()  # a library rounds by where numbers lie: as after load
            gradients[name].copy_(_product(bases[name], right).view(gradients[name].shape))

    def coded_bytes(self, shape: Sequence[float], itemsize: int) -> float:
        return self._numbers(shape) * itemsize

    def state(self) -> Mapping[str, Tensor]:
        return {
            **self._residuals,
            **{name + _FACTOR: factor for name, factor in self._factors.items()},
            **{name + _BEGUN: torch.tensor([float(seen)]) for name, seen in self._seen.items()},
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        def ending(end: str) -> dict[str, Tensor]:
            return {name.removesuffix(end): value for name, value in state.items() if name.endswith(end)}

        self._factors = ending(_FACTOR)
        self._seen = {name: int(seen.item()) for name, seen in ending(_BEGUN).items()}
        self._residuals = {name: value for name, value in state.items() if not name.endswith((_FACTOR, _BEGUN))}

    def _begins(self, name: str, gradient: Tensor) -> bool:
        """Return whether the gradient is sent as a product this time."""
        if self._numbers(gradient.shape) >= gradient.numel():
            return False
        seen = self._seen.get(name, 0)
        if seen < self._warm_up:
            self._seen[name] = seen + 1
        return seen >= self._warm_up

    def _numbers(self, shape: Sequence[float]) -> float:
        """Return how many numbers a gradient of ``shape`` sends: two thin matrices, or itself if that is fewer."""
        n, m = math.prod(shape[:1]), math.prod(shape[1:])
        return min(self._rank * (n + m), n * m)

    def _matrix(self, name: str, gradient: Tensor) -> Tensor:
        residual = self._residuals.get(name)
        whole = gradient if residual is None else gradient + residual.to(gradient.dtype)
        return whole.flatten(1)

    def _bases(self, matrices: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> dict[str, Tensor]:
        """Return P̂ of each gradient, the same on all ranks."""
        lefts = [matrix @ self._factor(name, matrix) for name, matrix in matrices.items()]
        row = flatten(lefts)
        transport.reduce(comm, row.numpy())
        if comm.rank == 0:
            row = flatten(torch.linalg.qr(total.double()).Q.to(row.dtype) for total in unflatten(row, lefts))
        transport.bcast(comm, row.numpy())
        return dict(zip(matrices, unflatten(row, lefts), strict=True))

    def _factor(self, name: str, matrix: Tensor) -> Tensor:
        """Return Q (columns, rank); the first one is drawn at random, by the parameter's name."""
        factor = self._factors.get(name)
        if factor is not None:
            return factor.to(matrix.dtype)
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.randn(matrix.shape[1], self._rank, generator=generator).to(matrix.dtype)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right.t()`` with the same bits on all machines: scalar products and sums in one order."""
    product = torch.zeros(left.shape[0], right.shape[0], dtype=left.dtype)
    for column in range(left.shape[1]):
        product += left[:, column, None] * right[None, :, column]
    return product
