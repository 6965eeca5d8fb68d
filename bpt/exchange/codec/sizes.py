"""How many bytes stand for a gradient on its way, for forecasts. No tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpt.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.plan.spec import CompressionSpec

PLACE = 4  # bytes
_Codec = pb.CompressionParameter


def coded_bytes(param: CompressionSpec, shape: Sequence[float], itemsize: int) -> float:
    """Bytes of a gradient of ``shape`` by the codec of ``param``, once it is under way.

    Args:
        itemsize: bytes of a number without a codec.
    """
    elements = math.prod(shape)
    match param.codec:
        case _Codec.BF16 | _Codec.FP16:
            return 2 * elements
        case _Codec.TOPK:
            return param.ratio * elements * (itemsize + PLACE)
        case _Codec.POWERSGD:
            n = shape[0] if shape else 1
            m = elements / n if n else 0
            return min(param.rank * (n + m), elements) * itemsize
        case _:
            return elements * itemsize
