"""The memory format of the blobs of a net.

Channels-last (NHWC; NDHWC for volumes) and contiguous (NCHW, NCDHW) give the same numbers up to rounding. Which one is
faster depends on the net, the batch and the machine; MemoryFormatChoice measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.kernels.channels_last import FORMATS, channels_last


def laid_out(tensor: Tensor, engine: int) -> Tensor:
    """Return ``tensor`` in the memory format of ``engine``; only blobs with four or five axes have a choice."""
    if engine != pb.SolverParameter.CHANNELS_LAST or tensor.dim() not in FORMATS:
        return tensor.contiguous()
    return channels_last(tensor)


@dataclass
class MemoryFormatPlacement:
    """Puts tensors on ``device``, in the memory format of ``engine``, which may change between iterations."""

    device: torch.device
    engine: int

    def __call__(self, tensor: Tensor) -> Tensor:
        return laid_out(tensor.to(self.device, non_blocking=True), self.engine)
