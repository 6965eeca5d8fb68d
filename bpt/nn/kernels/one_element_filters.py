"""Convolutions by filters of one element (1x1, 1x1x1), by oneDNN on one thread, too.

On a CPU, torch convolves by oneDNN, with one exception. On one thread, it multiplies matrices with MKL if filters have
one element and the batch has fewer than 16 samples. MKL's fast code is for Intel's processors. On AMD's with AVX-512,
oneDNN takes half to two thirds of that time for blobs that are channels-last. Torch gives dilated filters to oneDNN in
any case, and a filter of one element is the same with any dilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from bpt.nn.kernels.channels_last import is_channels_last
from bpt.nn.kernels.recording import is_compiling_or_tracing

FEW = 16  # samples from which torch uses oneDNN anyway
NARROW = 16  # channels and outputs of a group below which MKL is as fast
SMALL = 20_000_000  # multiply-adds below which it is, too


def faster_dilation(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], group: int
) -> Sequence[int]:
    """Return the dilation by which ``torch.convolution`` gives the same top sooner; ``dilation`` if there is none.

    The numbers differ from those of ``dilation`` by rounding. The choice depends only on the processor, the number of
    threads, the layout and the shapes, so a run that is repeated or resumed chooses alike.

    Args:
        x: ``(N, channels, spatial axes …)``.
        weight: ``(outputs, channels / group, kernel …)``.
        stride, dilation: one number for each spatial axis, or one for all.
    """
    if is_compiling_or_tracing():
        return dilation
    outputs, channels = weight.shape[:2]
    if weight.numel() != outputs * channels or x.shape[0] >= FEW or torch.get_num_threads() > 1:
        return dilation
    wide = channels >= NARROW and outputs >= NARROW * group and x.numel() * outputs >= SMALL * group
    plain = max(stride) == max(dilation) == 1
    if not wide or not plain or x.dtype != torch.float32 or x.device.type != "cpu" or not is_channels_last(x):
        return dilation
    return [2] * len(dilation) if torch.backends.mkldnn.enabled and mkl_is_slow() else dilation


@cache
def mkl_is_slow() -> bool:
    """Return whether this processor is one of AMD's with AVX-512, for which MKL has slower code than oneDNN."""
    backends = torch.backends
    libraries = backends.mkl.is_available() and backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not libraries or backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
