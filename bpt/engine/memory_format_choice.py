"""The choice of the memory format (channels-last or contiguous) by measuring the first iterations of training."""

from __future__ import annotations

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.measured_choice import MeasuredChoice

MARGIN = 0.9  # contiguous wins only below this fraction of the channels-last time, because times are noisy


class MemoryFormatChoice(MeasuredChoice):
    """The choice between contiguous blobs and blobs whose channels are last."""

    names = pb.SolverParameter.Engine
    candidates = (pb.SolverParameter.CONTIGUOUS, pb.SolverParameter.CHANNELS_LAST)
    auto = pb.SolverParameter.AUTO
    trials = 3

    def _best(self) -> int:
        contiguous, channels_last = map(self.fastest, self.candidates)
        return self.candidates[0] if contiguous < MARGIN * channels_last else self.candidates[1]
