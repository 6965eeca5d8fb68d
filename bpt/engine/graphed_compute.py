"""GraphedCompute: training passes on a GPU, replayed as one CUDA graph once their shapes are settled.

Small nets are bound by launches: the host takes longer to start a kernel than the device to run it. A graph starts all
kernels of a pass at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bpt.engine.compute import Place, Start, Tensors, Update
from bpt.engine.replayed_compute import Outcome, Replay, ReplayedCompute, Work
from bpt.engine.segment_state import SegmentState
from bpt.graph.segments import Segment
from bpt.nn.net import Net

LOG = logging.getLogger("bpt")

CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # of the largest value; half precision: 0.02


def capture_graph(work: Callable[[], Sequence[Tensor]]) -> tuple[Sequence[Tensor], Callable[[], object]]:
    """Return the tensors that ``work`` fills, and a function that fills them anew; captures without computing.

    Threads that read ahead may use the device meanwhile.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        made = work()
    return made, graph.replay


class GraphedCompute(ReplayedCompute):
    """ReplayedCompute for training on one GPU, without a stop of the host inside of a pass.

    Labels are checked by a LabelGuard. The log says once whether passes are replayed, or why not; then they run one
    kernel at a time.
    """

    def __init__(self, net: Net, place: Place) -> None:
        super().__init__(net, place)
        self._told = False

    def check(self) -> None:
        self._guard.check()

    def forward(self, segment: Segment, bottoms: Tensors, grad: bool) -> tuple[dict[int, Tensor], SegmentState]:
        if not grad:
            return super().forward(segment, bottoms, grad)
        with self._guard.active():
            return super().forward(segment, bottoms, grad)

    def forward_backward(
        self, segment: Segment, bottoms: Tensors, start: Start, update: Update | None = None
    ) -> Outcome:
        if self._refusal:
            self._tell(f"no CUDA graph: {self._refusal}")
        return super().forward_backward(segment, bottoms, start, update)

    def _tell(self, message: str) -> None:
        if not self._told:
            self._told = True
            LOG.info("%s", message)

    def _replay_of(self, work: Work, inputs: Tensors) -> Replay:
        own = {edge: value.clone(memory_format=torch.preserve_format) for edge, value in inputs.items()}
        made, replay = capture_graph(lambda: work(own))

        def copy_and_replay(inputs: Tensors) -> Sequence[Tensor]:
            for edge, value in inputs.items():
                own[edge].copy_(value, non_blocking=True)
            replay()
            return made

        return copy_and_replay

    def _agree(self, found: Tensor, expected: Tensor) -> bool:
        """Return whether tensors are equal except for rounding, and finite where the others are."""
        most = CLOSE.get(expected.dtype, 0.02) * float(expected.detach().abs().amax()) if expected.numel() else 0.0
        return found.shape == expected.shape and torch.allclose(found, expected, rtol=0, atol=most, equal_nan=True)

    def _accept(self) -> None:
        self._tell("Forward and backward passes are replayed as one CUDA graph")

    def _refuse(self, why: str) -> None:
        super()._refuse(why)
        LOG.warning("no CUDA graph, kernels are launched one by one: %s", self._refusal)
        self._told = True
