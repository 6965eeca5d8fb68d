"""WholePass: runs a TEST net as one fused pass, without the blobs that nobody reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.nn.fusion.fixed_steps import FixedSteps
from bpt.nn.fusion.fusion_steps import plan_steps
from bpt.nn.net import Net

REMEMBERED = 10  # number of passes that still compute a blob after the caller has read it


@dataclass(frozen=True)
class Sources:
    """The layers without bottoms, which provide the samples.

    Attributes:
        drawn: those that make their tops in each pass.
        tops: the edges that they make, with their shapes.
        readers: all other layers.
    """

    drawn: tuple[int, ...]
    tops: dict[int, Shape]
    readers: tuple[int, ...]

    @classmethod
    def of(cls, graph: LayerGraph) -> Sources:
        sources = [node for node in graph.nodes if not node.bottoms]
        return cls(
            tuple(node.index for node in sources if node.type != "Input"),
            {edge: graph.edges[edge].shape for node in sources for edge in node.tops},
            tuple(node.index for node in graph.nodes if node.bottoms),
        )


class WholePass:
    """A pass with fused layers, prepared parameters and, on a CPU, channels-last blobs (see ``bpt.nn.fusion``).

    It computes the outputs and the blobs that were read lately. A caller who reads the same blobs after every pass gets
    them at no extra cost.

    Args:
        net: the net; each change of its parameters must be followed by ``forget``.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self.sources = Sources.of(net.graph)
        self._steps: FixedSteps | None = None
        self._keep: frozenset[int] = frozenset()
        self._always = always_kept(net.graph)
        self._watched: deque[frozenset[int]] = deque(maxlen=REMEMBERED)
        self.fits = _fits(net)

    def forget(self) -> None:
        """Drop the prepared steps, because parameters or shapes change."""
        self._steps = None

    def run(self, samples: Mapping[int, Tensor], watched: Collection[int]) -> dict[int, Tensor]:
        """Run a pass without gradients.

        Args:
            samples: the tops of the layers without bottoms, by edge; the pass only reads them.
            watched: edges to return besides the outputs.

        Returns:
            At least the watched edges and the outputs, each contiguous. Two of them share memory only if a layer
            returns its bottom.
        """
        self._watched.append(frozenset(watched))
        keep = self._always.union(*self._watched) - samples.keys()
        if self._steps is None or keep != self._keep:
            self._steps = None  # free the old steps' memory before the new ones are made
            self._steps, self._keep = self._planned(keep), keep
        values = dict(samples)
        with torch.no_grad():
            self._net.run(0, len(self._net.graph), values, keep, steps=self._steps)
        return {edge: values[edge].contiguous() for edge in keep}

    def _planned(self, keep: Collection[int]) -> FixedSteps:
        net = self._net
        layers = [net.layer(node) for node in net.graph.nodes]
        steps = plan_steps(net.graph, layers, range(len(layers)), keep, net.precision.in_half, grad=False, fixed=True)
        return FixedSteps([step for step in steps if step.nodes[0].bottoms], layers, keep)


def copied(tensor: Tensor) -> Tensor:
    """Return a copy of ``tensor``; on a CPU images become channels-last."""
    images = tensor.dim() == 4 and tensor.device.type == "cpu"
    return tensor.clone(memory_format=torch.channels_last if images else torch.preserve_format)


def share_memory(tensors: Collection[Tensor]) -> bool:
    """Return whether two of the tensors share memory."""
    return len({tensor.untyped_storage().data_ptr() for tensor in tensors}) < len(tensors)


def always_kept(graph: LayerGraph) -> frozenset[int]:
    """Return the outputs and, for the next pass, the last versions of samples that layers change in place."""
    tops = {graph.edges[edge].blob for edge in Sources.of(graph).tops}
    return frozenset(edge.index for edge in (*graph.outputs, *(graph.blobs[blob] for blob in tops)))


def _fits(net: Net) -> bool:
    """Return whether the layers can compute the blobs that a pass has left out later, from the same samples."""
    graph = net.graph
    repeatable = all(net.layer(node).repeatable for node in graph.nodes if node.bottoms)
    no_filters = all(node.type != "Filter" for node in graph.nodes)
    alone = not any(node.params for node in graph.nodes if not node.bottoms)
    return graph.phase == pb.TEST and not graph.debug_info and repeatable and no_filters and alone
