"""WholePass: a TEST net run as one, without the blobs that nobody looks at."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.fusion.fusion_steps import FusionStep, plan_steps
from bpt.nn.kernels.channels_last import channels_last
from bpt.nn.net import Net

REMEMBERED = 10  # passes for which a blob is made that was looked at


class WholePass:
    """Layers fused, parameters prepared, blobs channels-last on a CPU; see ``bpt.nn.fusion``.

    It makes the outputs, and what was looked at lately, so that a caller who looks at the same blobs after every pass
    gets them at no extra cost.

    Args:
        net: with parameters that change only where ``forget`` is called.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._steps: tuple[FusionStep, ...] | None = None
        self._keep: frozenset[int] = frozenset()
        self._watched: deque[frozenset[int]] = deque(maxlen=REMEMBERED)
        self.fits = _fits(net)

    def forget(self) -> None:
        """Parameters or shapes change: what was prepared is out of date."""
        self._steps = None

    def run(self, samples: Mapping[int, Tensor], watched: Collection[int]) -> dict[int, Tensor]:
        """Return a pass without gradients.

        Args:
            samples: the tops of the layers without bottoms, by edge; they are only read.
            watched: edges that are wanted beside the outputs.

        Returns:
            At least these edges and the outputs, each contiguous; no others' memory unless the layers pass it on.
        """
        graph = self._net.graph
        self._watched.append(frozenset(watched))
        keep = frozenset().union(*self._watched, always_kept(graph)) - samples.keys()
        if self._steps is None or keep != self._keep:
            self._steps = None  # its memory comes first
            self._steps, self._keep = self._planned(keep), keep
        values = dict(samples)
        with torch.no_grad():
            self._net.run(0, len(graph), values, keep, steps=self._steps)
        return {edge: values[edge].contiguous() for edge in keep}

    def _planned(self, keep: Collection[int]) -> tuple[FusionStep, ...]:
        net = self._net
        layers = [net.layer(node) for node in net.graph.nodes]
        steps = plan_steps(net.graph, layers, range(len(layers)), keep, net.precision.in_half, grad=False, fixed=True)
        return tuple(step for step in steps if step.nodes[0].bottoms)


def sources(graph: LayerGraph) -> Sequence[int]:
    """Return the layers without bottoms, which the samples come from."""
    return [node.index for node in graph.nodes if not node.bottoms]


def copied(tensor: Tensor) -> Tensor:
    """``tensor`` in memory of its own; on a CPU images are channels-last."""
    ordered = channels_last(tensor) if tensor.dim() == 4 and tensor.device.type == "cpu" else tensor
    return ordered.clone() if ordered.data_ptr() == tensor.data_ptr() else ordered


def share_memory(tensors: Collection[Tensor]) -> bool:
    """Return whether two of them lie in one memory."""
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) < len(tensors)


def always_kept(graph: LayerGraph) -> frozenset[int]:
    """Return outputs, and what layers in place make of the samples: the next pass goes on from that."""
    tops = {graph.edges[edge].blob for index in sources(graph) for edge in graph.nodes[index].tops}
    return frozenset(edge.index for edge in (*graph.outputs, *(graph.blobs[blob] for blob in tops)))


def _fits(net: Net) -> bool:
    """Return whether the blobs that a pass has left out can be made later, by the same layers, of the same samples."""
    graph = net.graph
    repeatable = all(net.layer(node).repeatable for node in graph.nodes if node.bottoms)
    no_filters = all(node.type != "Filter" for node in graph.nodes)
    alone = not any(graph.nodes[index].params for index in sources(graph))
    return graph.phase == pb.TEST and not graph.debug_info and repeatable and no_filters and alone
