"""LocalOperator: runs segments on one device, each as an autograd state of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from bpt.errors import BptError, RunError
from bpt.execute.layout import laid_out
from bpt.failures import is_out_of_memory, kernel_error
from bpt.graph.segments import Segment, whole
from bpt.graph.transfers import wants_diff
from bpt.layers.python_errors import explain
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb


@dataclass
class SegmentState:
    """What a segment's forward leaves for its backward: its own leaves, and what came of them."""

    leaves: dict[int, Tensor] = field(default_factory=dict)  # input edge → detached tensor
    tops: dict[int, Tensor] = field(default_factory=dict)  # output edge → tensor with its autograd graph


class LocalOperator:
    """Executes ``Forward`` and ``Backward`` for a net on one device.

    Between segments tensors are detached, so ``backward(s)`` differentiates segment ``s`` alone. Diffs
    of the edges at its end come from the segments behind it, from ``loss_weight`` and from
    ``set_diff``.

    Args:
        net: the net, already on ``device``.
        segments: how the graph is cut; the whole net is one by default.
        device: where layers without bottoms put their tops.
        engine: layout of blobs with four or five axes, CONTIGUOUS or CHANNELS_LAST; may change between iterations.
    """

    keeps_graphs: ClassVar[bool] = False  # whether a segment's backward may be repeated; costs memory

    def __init__(
        self,
        net: Net,
        segments: Sequence[Segment] | None = None,
        device: torch.device | str = "cpu",
        engine: int = pb.SolverParameter.CONTIGUOUS,
    ) -> None:
        self.net = net
        self.segments = tuple(segments or whole(net.graph))
        self.device = torch.device(device)
        self.engine = engine
        self.values: dict[int, Tensor] = {}  # edges at the segments' borders, detached
        self.diffs: dict[int, Tensor] = {}
        self._states: dict[int, SegmentState] = {}

    def cut_into(self, segments: Sequence[Segment]) -> None:
        """Go on with the net cut into other segments, between iterations; what was fed stays."""
        self.segments = tuple(segments)
        fed = {edge for node in self.net.graph.nodes if node.type == "Input" for edge in node.tops}
        kept = {edge: value for edge, value in self.values.items() if edge in fed}
        self.reset()
        self.values.update(kept)

    def feed(self, inputs: Mapping[int, Tensor]) -> None:
        """Set the tops of Input layers, by edge index, for the passes that follow."""
        for edge, tensor in inputs.items():
            self.values[edge] = self._place(tensor)

    def reset(self) -> None:
        """Forget all values and diffs: the net's blobs have got other shapes."""
        self.values.clear()
        self.diffs.clear()
        self._states.clear()

    def _place(self, tensor: Tensor) -> Tensor:
        return laid_out(tensor.to(self.device, non_blocking=True), self.engine)

    def forward(self, index: int, grad: bool = True) -> None:
        """Run segment ``index``; its inputs must stand in ``values``. ``grad``: backward will follow."""
        segment = self.segments[index]
        fed = self._fed(segment)
        for edge in fed:
            self.values[edge] = laid_out(self.values[edge], self.engine)
        tops = self._run(index, {edge: self.values[edge] for edge in (*segment.inputs, *fed)}, grad)
        for edge, top in tops.items():
            self.values[edge] = top

    def _run(self, index: int, bottoms: Mapping[int, Tensor], grad: bool) -> dict[int, Tensor]:
        """Run segment ``index`` on ``bottoms``; returns its outputs, detached. Keeps its state if ``grad``."""
        segment = self.segments[index]
        state = SegmentState()
        env: dict[int, Tensor] = {}
        for edge, bottom in bottoms.items():
            wants = grad and wants_diff(self.net.graph, edge)
            env[edge] = state.leaves[edge] = bottom.detach().requires_grad_(wants)
        with torch.set_grad_enabled(grad):
            self.net.run(segment.start, segment.end, env, set(segment.outputs), self._place)
        if grad:
            state.tops = {edge: env[edge] for edge in segment.outputs if env[edge].requires_grad}
            self._states[index] = state
        return {edge: env[edge].detach() for edge in segment.outputs}

    def _fed(self, segment: Segment) -> list[int]:
        """Edges of the segment's Input layers; those that nobody has set hold zeros, as in Caffe."""
        graph = self.net.graph
        if self.net.sources_apart:
            return []
        edges = [e for node in graph.nodes[segment.start : segment.end] if node.type == "Input" for e in node.tops]
        for edge in edges:
            if edge not in self.values:
                self.feed({edge: torch.zeros(self.net.context.own_shape(graph.edges[edge].shape))})
        return edges

    def backward(self, index: int) -> None:
        """Run segment ``index`` backward: sets its inputs' diffs, adds to its parameters' ``.grad``."""
        diffs = {edge: self._starting_diff(edge, top) for edge, top in self._states[index].tops.items()}
        for edge, diff in self._run_back(index, diffs).items():
            self.diffs[edge] = diff

    def _run_back(self, index: int, diffs: Mapping[int, Tensor | None]) -> dict[int, Tensor]:
        """Run segment ``index`` backward from ``diffs`` of its outputs; returns those that its inputs want."""
        state = self._states.pop(index)
        roots, grads = [], []
        for edge, top in state.tops.items():
            diff = diffs[edge]
            if diff is not None:
                roots.append(top)
                grads.append(diff)
        if roots:
            self._differentiate(self.segments[index], roots, grads)
        return {
            edge: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            for edge, leaf in state.leaves.items()
            if leaf.requires_grad
        }

    def _differentiate(self, segment: Segment, roots: list[Tensor], grads: list[Tensor]) -> None:
        try:
            torch.autograd.backward(roots, grads, retain_graph=self.keeps_graphs)
        except BptError:
            raise
        except Exception as error:
            first, last = (self.net.graph.nodes[i].name for i in (segment.start, segment.end - 1))
            where = f'layer "{first}"' if first == last else f'layers "{first}" to "{last}"'
            if not isinstance(error, (RuntimeError, MemoryError)):  # no kernel raises others, but a user's code may
                if any(node.type == "Python" for node in self.net.graph.nodes[segment.start : segment.end]):
                    raise RunError(f"backward pass, {where}: {explain(error)}") from error
                raise
            hint = "" if first == last or is_out_of_memory(error) else "; debug_info: true tells which layer"
            raise RunError(f"backward pass, {kernel_error(where, error)}{hint}") from error

    def _starting_diff(self, edge: int, top: Tensor) -> Tensor | None:
        """The diff that flows into ``edge`` from behind; ``None`` if nothing does.

        A loss starts with its weight. What a later segment hands back is added to it, as it would be if
        that layer stood in this segment; what a caller has set for an output replaces it.
        """
        diff = self.diffs.get(edge)
        info = self.net.graph.edges[edge]
        if not info.loss_weight or (diff is not None and info.consumer is None):
            return diff
        weight = torch.full_like(top, info.loss_weight)
        return weight if diff is None else diff + weight

    def loss(self) -> Tensor:
        """The sum of all losses, each times its ``loss_weight``; a scalar on the device."""
        total = torch.zeros((), device=self.device)
        for edge in self.net.graph.losses:
            if edge.index in self.values:  # or else it is made on another stage
                total = total + self.values[edge.index].sum() * edge.loss_weight
        return total
