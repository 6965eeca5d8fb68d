"""Factors and summands by channel: what Scale, Bias and BatchNorm by stored statistics do, and what others take in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

Weights = tuple[Tensor | None, Tensor | None]
"""What a layer multiplies by, and what it adds; ``None``: 1, and 0."""


@dataclass(frozen=True)
class ChannelAffine:
    """``factors · x + summands`` along axis 1 of ``x``.

    Attributes:
        factors, summands: ``(channels,)``; ``None``: 1, and 0.
    """

    factors: Tensor | None = None
    summands: Tensor | None = None

    def then(self, behind: ChannelAffine) -> ChannelAffine:
        """Return this one, and another applied to what it gives."""
        return ChannelAffine(_times(self.factors, behind.factors), _plus(self.summands, behind))

    def applied_to(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """A weight ``(channels, …)`` and a bias ``(channels,)`` that make what this affine makes of their tops."""
        factors = self.factors
        spread = None if factors is None else factors.view(-1, *(1,) * (weight.dim() - 1))
        return weight if spread is None else weight * spread, _plus(bias, self)


def _times(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return first if second is None else second
    return first * second


def _plus(summands: Tensor | None, behind: ChannelAffine) -> Tensor | None:
    scaled = None if summands is None else _times(summands, behind.factors)
    if scaled is None or behind.summands is None:
        return behind.summands if scaled is None else scaled
    return scaled + behind.summands
