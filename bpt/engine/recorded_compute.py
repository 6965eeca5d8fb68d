"""RecordedCompute: training passes on a CPU, replayed as a program of operators once their shapes are settled."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from bpt.engine.compute import Start, Tensors
from bpt.engine.replayed_compute import WITHOUT_DRAWS, Outcome, Replay, ReplayedCompute, Work
from bpt.graph.segments import Segment
from bpt.nn.fusion.operator_program import record_program

LARGEST = 2**27  # numbers of a net's blobs and parameters above which the time between kernels does not count
RECORDABLE = WITHOUT_DRAWS | frozenset(
    {
        "Bias", "Concat", "Convolution", "Eltwise", "Flatten", "InnerProduct", "LRN", "Pooling", "Power", "ReLU",
        "ReLU6", "Reshape", "Scale", "Sigmoid", "Softmax", "TanH",
    }
)  # fmt: skip
"""Types of which no value decides what they compute, such as a test of it in Python, which no recorder can see."""


class RecordedCompute(ReplayedCompute):
    """ReplayedCompute for training on a CPU: a recorded pass gives the numbers of the plain one, bit for bit.

    Labels of a recorded pass are checked after it. If one is no class, the plain pass raises its error.
    """

    def _why_plain(self) -> str:
        graph = self._net.graph
        for node in graph.nodes:
            if node.bottoms and node.type not in RECORDABLE:
                return f'layer "{node.name}" ({node.type}) may read values'
        shapes = [*(edge.shape for edge in graph.edges), *(param.shape for param in graph.params)]
        if sum(map(prod, shapes)) > LARGEST:
            return "its kernels take nearly all of its time"
        return super()._why_plain()

    def _settled(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        with self._guard.active():
            outcome = super()._settled(segment, inputs, start)
        if self._guard.refused():
            self._plain(segment, inputs, start)
        return outcome

    def _replay_of(self, work: Work, inputs: Tensors) -> Replay:
        parameters = [each.detach() for each in self._parameters]
        program = record_program(lambda: work(inputs), [*inputs.values(), *parameters])
        return lambda inputs: program([*inputs.values(), *parameters])

    def _agree(self, found: Tensor, expected: Tensor) -> bool:
        return torch.equal(found, expected) and found.stride() == expected.stride()
