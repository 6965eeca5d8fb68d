"""BF16 and FP16: two bytes a number, half of float32's.

BF16 has float32's range and 8 binary digits; a number is rounded to the nearest, ties to even. FP16 has 11 digits, from
6e-8 to 65504: what is larger goes as 65504, and the rest of it with the next gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.parallel.exchange.codec.base import CODECS
from bpt.parallel.exchange.codec.feedback import Feedback

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import CompressionSpec


PASSES = 28  # by counting: residuals are added, what is written is read again, and the remainder is kept


class Half:
    """A Code that writes numbers in a half-precision type."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._most = torch.finfo(dtype).max

    def size(self, like: Tensor) -> int:
        return self._dtype.itemsize * like.numel()

    def bytes_each(self, itemsize: int) -> float:
        return self._dtype.itemsize

    def encode(self, values: Tensor) -> Tensor:
        half = values.to(self._dtype)
        overflows = half.isinf() & values.isfinite()
        if overflows.any():
            half = torch.where(overflows, values.clamp(-self._most, self._most).to(self._dtype), half)
        return half.view(torch.uint8)

    def decode(self, code: Tensor, like: Tensor) -> Tensor:
        return code.view(self._dtype).to(like.dtype)


@CODECS.register("BF16")
class Bf16(Feedback):
    """A codec that sends gradients in bfloat16."""

    passes = PASSES

    def __init__(self, param: CompressionSpec) -> None:
        super().__init__(Half(torch.bfloat16))


@CODECS.register("FP16")
class Fp16(Feedback):
    """A codec that sends gradients in float16."""

    passes = PASSES

    def __init__(self, param: CompressionSpec) -> None:
        super().__init__(Half(torch.float16))
