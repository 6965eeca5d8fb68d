"""Which memory layout the blobs of a net have: chosen by measuring, in the first iterations of training.

Channels-last (NHWC; NDHWC for volumes) and contiguous (NCHW, NCDHW) compute the same numbers up to rounding; which is
faster depends on the net, the batch and the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.execute.engine_choice import EngineChoice
from bpt.kernels.channels_last import FORMATS, channels_last
from bpt.proto import bpt_pb2 as pb

MARGIN = 0.9  # contiguous must be faster than this, since channels-last hardly ever loses and times are noisy


def laid_out(tensor: Tensor, engine: int) -> Tensor:
    """``tensor`` in the layout of ``engine``; only blobs with four or five axes have a choice."""
    if engine != pb.SolverParameter.CHANNELS_LAST or tensor.dim() not in FORMATS:
        return tensor.contiguous()
    return channels_last(tensor)


@dataclass
class Placement:
    """Puts tensors on ``device``, in the memory layout of ``engine``, which may change between iterations."""

    device: torch.device
    engine: int

    def __call__(self, tensor: Tensor) -> Tensor:
        return laid_out(tensor.to(self.device, non_blocking=True), self.engine)


class LayoutChoice(EngineChoice):
    """Between the two layouts; see EngineChoice."""

    names = pb.SolverParameter.Engine
    candidates = (pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST)
    auto = pb.SolverParameter.AUTO
    trials = 3

    def _best(self) -> int:
        contiguous, channels_last = map(self.fastest, self.candidates)
        return self.candidates[0] if contiguous < MARGIN * channels_last else self.candidates[1]
