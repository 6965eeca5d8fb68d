"""Support of half precision: whether a device has instructions for it, and its kernels agree with float32.

A CPU without instructions for bfloat16 needs several times as long as in float32. Some versions of torch and oneDNN had
kernels with wrong numbers for some shapes, so a few of each kind are tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}  # of x86, and of ARM, by Linux's names
AGREE = 2**-6  # relative to the largest number; a sum in float32 that is rounded once differs by half of 2**-7 at most
SIZES = ((1, 1, 0, 1), (3, 1, 1, 1), (5, 2, 2, 1), (3, 1, 1, 4), (3, 2, 1, 32))  # kernel, stride, pad, group
CHANNELS = 32


def without_half(device: torch.device, dtype: torch.dtype) -> str:
    """Return why ``device`` cannot compute in ``dtype``, bfloat16 or float16; empty if it can."""
    if device.type == "cpu" and dtype == torch.float16:
        return "CPUs have no float16 products; use BFLOAT16"
    if device.type == "cpu" and not has_instructions():
        return "this CPU has no instruction for bfloat16 (avx512_bf16, amx_bf16, or ARM's bf16)"
    if device.type == "cuda" and dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(False):
        return "this GPU has no instruction for bfloat16; use FLOAT16"
    return disagreement(device, dtype)


def has_instructions() -> bool:
    """Return whether this CPU has instructions for bfloat16. Where Linux does not say, it is assumed."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return not INSTRUCTIONS.isdisjoint(text.split())


@cache
def disagreement(device: torch.device, dtype: torch.dtype) -> str:
    """Return which kernels do not compute in ``dtype`` what they compute in float32; empty if all agree."""
    for name, half, single in _trials(device, dtype):
        error = (half.float() - single).abs().max().item()
        if not error <= AGREE * single.abs().max().item():  # NaN is a disagreement, too
            return f"its {name} in {str(dtype).removeprefix('torch.')} disagrees with float32 by {error:.2g}"
    return ""


def _trials(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield pairs of results, in half precision and in float32 from the same numbers: tops, diffs and gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    for layout, sizes in ((torch.channels_last, SIZES), (torch.contiguous_format, SIZES[1:2])):
        for kernel, stride, pad, group in sizes:
            x = draw(4, CHANNELS, 9, 9).contiguous(memory_format=layout)
            weight = draw(CHANNELS, CHANNELS // group, kernel, kernel)
            places = (9 + 2 * pad - kernel) // stride + 1
            diff = draw(4, CHANNELS, places, places).contiguous(memory_format=layout)
            window = stride, pad, group
            sides = _convolve(x, weight, diff, *window), _convolve(x.float(), weight.float(), diff.float(), *window)
            for what, half, single in zip(("top", "diff", "gradient"), *sides, strict=True):
                yield f"convolution's {what} (kernel {kernel}, stride {stride}, group {group})", half, single
    x, weight = draw(16, 300), draw(50, 300)
    yield "inner product", x @ weight.t(), x.float() @ weight.float().t()


def _convolve(x: Tensor, weight: Tensor, diff: Tensor, stride: int, pad: int, group: int) -> tuple[Tensor, ...]:
    window = (stride, stride), (pad, pad), (1, 1), False, (0, 0), group
    y = torch.convolution(x, weight, None, *window)
    dx, dw, _ = torch.ops.aten.convolution_backward(diff, x, weight, None, *window, [True, True, False])
    return y, dx, dw
