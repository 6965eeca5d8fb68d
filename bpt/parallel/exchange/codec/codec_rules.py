"""The rules of codecs: which settings combine with them, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

PARAM = "compression_param"
_Codec = pb.CompressionParameter
_READ = {"ratio": _Codec.TOPK, "rank": _Codec.POWERSGD, "warm_up": _Codec.POWERSGD}
"""Field → the codec that reads it."""


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why gradients cannot travel as ``plan`` says."""
    param = plan.parallel_param.compression_param
    if plan.is_outer and param.codec == _Codec.POWERSGD:
        yield Violation(
            (PARALLEL, PARAM, "codec"),
            "codec: POWERSGD is made of sums over ranks, and under exchange: {exchange} each worker submits by itself",
            "use codec: TOPK, BF16 or FP16",
            exchange=pb.ParallelParameter.Exchange.Name(plan.parallel_param.exchange),
        )
    yield from check_range(param, "ratio", PARALLEL, PARAM, above=0, below=1)
    yield from check_range(param, "rank", PARALLEL, PARAM, least=1)
    yield from check_range(param, "warm_up", PARALLEL, PARAM, least=0)


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of codecs that are not in use."""
    codec = plan.parallel_param.compression_param.codec
    if codec == _Codec.NONE:
        if plan.given(PARALLEL, PARAM) and not plan.given(PARALLEL, PARAM, "codec"):
            yield IgnoredSetting((PARALLEL, PARAM), "without codec")
        return
    for field, reader in _READ.items():
        if codec != reader and plan.given(PARALLEL, PARAM, field):
            yield IgnoredSetting((PARALLEL, PARAM, field), f"without codec: {_Codec.Codec.Name(reader)}")
