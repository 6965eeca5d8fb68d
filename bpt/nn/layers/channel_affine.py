"""Factors and summands by channel: the effect of Scale, Bias and BatchNorm by stored statistics, which others fold."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

Weights = tuple[Tensor | None, Tensor | None]
"""The factors and the summands of a layer; ``None`` means 1, or 0."""


@dataclass(frozen=True)
class ChannelAffine:
    """``factors · x + summands`` along axis 1 of ``x``.

    Attributes:
        factors: ``(channels,)``; ``None`` means 1.
        summands: ``(channels,)``; ``None`` means 0.
    """

    factors: Tensor | None = None
    summands: Tensor | None = None

    def then(self, behind: ChannelAffine) -> ChannelAffine:
        """Return this affine followed by another."""
        return ChannelAffine(_times(self.factors, behind.factors), _plus(self.summands, behind))

    def applied_to(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return a weight ``(channels, …)`` and a bias ``(channels,)`` that include this affine.

        A layer with these computes what the affine makes of the top of a layer with the given ones.
        """
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
