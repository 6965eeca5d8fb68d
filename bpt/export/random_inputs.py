"""Random inputs that a net makes sense of: most are numbers, some are labels, boxes, or where sequences begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.graph.layer_graph import Edge, LayerGraph, Node
from bpt.graph.spec import Shape

Pictures = Callable[[int, np.random.Generator], NDArray[np.float32]]
"""Makes so many prepared pictures, (N, channels, height, width)."""

Draw = Callable[[Shape, int, Node, torch.Generator], Tensor]
"""Of a blob of this shape, for so many times the samples of the text, that a layer reads."""


def _numbers(shape: Shape, times: int, reader: Node, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def _markers(shape: Shape, times: int, reader: Node, generator: torch.Generator) -> Tensor:
    """0 where a sequence begins, else 1: all sequences begin with the first steps."""
    steps = torch.ones(shape)
    return steps.index_fill(0, torch.arange(times if len(shape) == 1 else 1), 0.0)


def _indices(shape: Shape, times: int, reader: Node, generator: torch.Generator) -> Tensor:
    below = reader.spec.param.embed_param.input_dim or 1
    return torch.randint(below, shape, generator=generator).float()


def _regions(shape: Shape, times: int, reader: Node, generator: torch.Generator) -> Tensor:
    """Of the first image, some of them beyond its borders; of 16 cells at most in ``spatial_scale``."""
    ends = torch.rand((math.prod(shape) // 5, 2, 2), generator=generator) * 16 / _scale_of(reader)
    corners = torch.cat((ends.amin(1), ends.amax(1)), 1)
    return torch.cat((torch.zeros(len(corners), 1), corners), 1).reshape(shape)


def _image_sizes(shape: Shape, times: int, reader: Node, generator: torch.Generator) -> Tensor:
    """Height, width and scales of images with 12 × 16 places for anchors."""
    stride = reader.spec.param.proposal_param.feat_stride
    sizes = torch.tensor([12.0 * stride, 16.0 * stride, 1, 1])
    return sizes[: math.prod(shape) // shape[0]].expand(shape[0], -1).reshape(shape)


def _scale_of(reader: Node) -> float:
    """``spatial_scale`` of a layer that looks at regions."""
    param = reader.spec.param
    name = {"ROIPooling": "roi_pooling_param", "PSROIPooling": "psroi_pooling_param", "ROIAlign": "roi_align_param"}
    return float(getattr(param, name[reader.type]).spatial_scale) or 1.0


# By a layer's type and which of its bottoms it is.
_DRAWS: Mapping[tuple[str, int], Draw] = {
    ("LSTM", 1): _markers,
    ("RNN", 1): _markers,
    ("LSTMUnit", 2): _markers,
    ("Embed", 0): _indices,
    ("BatchReindex", 1): _indices,  # 0, which any batch has
    ("Proposal", 2): _image_sizes,
    **{(kind, 1): _regions for kind in ("ROIPooling", "PSROIPooling", "ROIAlign")},
}


class RandomInputs:
    """Inputs of a net, the same ones for the same number of batches.

    Args:
        graph: of the net.
        picture_blob: the input that is given pictures, prepared as those of the training; "": none is.
        pictures: makes so many of them.
    """

    def __init__(self, graph: LayerGraph, picture_blob: str = "", pictures: Pictures | None = None) -> None:
        self._picture_blob, self._pictures = picture_blob, pictures
        self._edges = [edge for edge in graph.edges if graph.nodes[edge.producer].type == "Input"]
        self._readers = [_reader(graph, edge) for edge in self._edges]

    @property
    def shapes(self) -> Sequence[Shape]:
        """As the text says."""
        return [edge.shape for edge in self._edges]

    def batch(self, times: int) -> tuple[Tensor, ...]:
        """So many times the samples that the text says."""
        generator = torch.Generator().manual_seed(times)
        made = []
        for edge, (node, place) in zip(self._edges, self._readers, strict=True):
            shape = (times * edge.shape[0], *edge.shape[1:]) if edge.shape else ()
            if self._pictures is not None and edge.blob == self._picture_blob:
                made.append(torch.from_numpy(self._pictures(shape[0], np.random.default_rng(times))))
                continue
            draw = _DRAWS.get((node.type, place), _numbers)
            made.append(draw(shape, times, node, generator))
        return tuple(made)


def _reader(graph: LayerGraph, edge: Edge) -> tuple[Node, int]:
    """The first layer that does more with an input than to give it another shape, and as which of its bottoms."""
    while edge.consumer is not None:
        node = graph.nodes[edge.consumer]
        if not node.layer_type.is_view:
            return node, node.bottoms.index(edge.index)
        edge = graph.edges[node.tops[0]]
    return graph.nodes[edge.producer], 0
