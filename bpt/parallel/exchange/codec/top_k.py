"""TOPK: of each message the numbers of largest magnitude, with their places (Stich et al. 2018; Lin et al. 2018)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.parallel.exchange.codec.base import CODECS
from bpt.parallel.exchange.codec.feedback import Feedback

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import CompressionSpec

PLACE = torch.int32


class Largest:
    """A Code of the k = ⌈ratio · n⌉ largest of n numbers: first the numbers, then their places, ascending.

    Args:
        ratio: above 0, and 1 at most.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio

    def size(self, like: Tensor) -> int:
        return self._count(like) * _entry(like.element_size())

    def bytes_each(self, itemsize: int) -> float:
        return self._ratio * _entry(itemsize)

    def encode(self, values: Tensor) -> Tensor:
        found = torch.topk(values.abs(), self._count(values), sorted=False).indices
        places = found.sort().values
        return torch.cat([values[places].view(torch.uint8), places.to(PLACE).view(torch.uint8)])

    def decode(self, code: Tensor, like: Tensor) -> Tensor:
        split = self._count(like) * like.element_size()
        numbers, places = code[:split].clone(), code[split:].clone()  # where numbers of their size may lie
        decoded = torch.zeros_like(like)
        decoded[places.view(PLACE).long()] = numbers.view(like.dtype)
        return decoded

    def _count(self, like: Tensor) -> int:
        return math.ceil(round(self._ratio * like.numel(), 6))  # float32's 0.01 is a little less


def _entry(itemsize: int) -> int:
    """Return the bytes of a number and its place."""
    return itemsize + PLACE.itemsize


@CODECS.register("TOPK")
class TopK(Feedback):
    """A codec that sends the largest elements of gradients; all others wait until they are large enough."""

    passes = 70  # to search takes two and a half times as long as all that half precision does

    def __init__(self, param: CompressionSpec) -> None:
        super().__init__(Largest(param.ratio))
