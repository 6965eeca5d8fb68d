"""The codes of codecs that write numbers as bytes, for who sends to one and sums nothing on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bpt.exchange.codec.half import Half
from bpt.exchange.codec.top_k import Largest
from bpt.exchange.transport.coded import Code
from bpt.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.plan.spec import CompressionSpec

_Codec = pb.CompressionParameter


def code_of(param: CompressionSpec) -> Code | None:
    """``None``: there is no codec, or it is made of sums (POWERSGD)."""
    match param.codec:
        case _Codec.BF16:
            return Half(torch.bfloat16)
        case _Codec.FP16:
            return Half(torch.float16)
        case _Codec.TOPK:
            return Largest(param.ratio)
        case _:
            return None
