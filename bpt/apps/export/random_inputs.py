"""Random inputs that suit a net: numbers, labels, boxes, or markers of the beginnings of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Edge, LayerGraph, LayerNode
from bpt.graph.layer_spec import Shape, count
from bpt.nn.layers.labels import are_distributions

Pictures = Callable[[int, np.random.Generator], NDArray[np.float32]]
"""A function that makes the given number of random prepared pictures, (N, channels, height, width)."""


@dataclass(frozen=True)
class InputReading:
    """A layer that reads an input, perhaps in another shape.

    Attributes:
        reader: the layer.
        place: the number of the bottom that is the input.
        shapes: the shapes of all bottoms of the layer, as in the text.
    """

    reader: LayerNode
    place: int
    shapes: Sequence[Shape]

    @property
    def param(self) -> pb.LayerParameter:
        return self.reader.spec.param


Draw = Callable[[Shape, int, InputReading, torch.Generator], Tensor]
"""A function that draws a blob, from its shape, the multiple of the text's batch, its reader, and a generator."""


def _numbers(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def _markers(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    """Return markers: 0 where a sequence begins, else 1. All sequences begin at the first step."""
    steps = torch.ones(shape)
    return steps.index_fill(0, torch.arange(times if len(shape) == 1 else 1), 0.0)


def _below(number: Callable[[InputReading], int]) -> Draw:
    """Return a function that draws whole numbers below ``number``."""

    def draw(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
        return torch.randint(max(number(reading), 1), shape, generator=generator).float()

    return draw


def _labels(axis: Callable[[InputReading], int]) -> Draw:
    """Return a function that draws labels below the number of classes, which is the length of ``axis`` of bottom 0.

    Every fifth label is ``ignore_label``, if the layer has one. Labels in the shape of scores are distributions.
    """

    def draw(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
        scores, along = reading.shapes[0], axis(reading)
        if are_distributions(scores, reading.shapes[reading.place], along):
            return torch.randn(shape, generator=generator).softmax(along)
        labels = torch.randint(max(scores[along], 1), shape, generator=generator).float()
        param = getattr(reading.param, _IGNORING.get(reading.reader.type, "loss_param"))
        if param.HasField("ignore_label"):
            labels.view(-1)[::5] = param.ignore_label
        return labels

    return draw


def _targets(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    """Return targets of 0 or 1. Every fifth target is ``ignore_label``, if the layer has one."""
    targets = torch.randint(2, shape, generator=generator).float()
    if reading.param.loss_param.HasField("ignore_label"):
        targets.view(-1)[::5] = reading.param.loss_param.ignore_label
    return targets


def _focal(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    """Return a target for each score, or a class for each position."""
    scores, labels = reading.shapes
    draw = _targets if count(scores) == count(labels) else _labels(_softmax_axis)
    return draw(shape, times, reading, generator)


def _softmax_axis(reading: InputReading) -> int:
    return reading.param.softmax_param.axis


def _features(reading: InputReading) -> int:
    """Return the classes of scores whose later axes are flattened."""
    return count(reading.shapes[0][1:])


def _regions(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    """Return regions of the first image, at most 16 cells of the feature map wide; some extend beyond its borders."""
    ends = torch.rand((math.prod(shape) // 5, 2, 2), generator=generator) * 16 / _scale_of(reading)
    corners = torch.cat((ends.amin(1), ends.amax(1)), 1)
    return torch.cat((torch.zeros(len(corners), 1), corners), 1).reshape(shape)


def _image_sizes(shape: Shape, times: int, reading: InputReading, generator: torch.Generator) -> Tensor:
    """Return the heights, widths and scales of images with 12 × 16 positions of anchors."""
    stride = reading.param.proposal_param.feat_stride
    sizes = torch.tensor([12.0 * stride, 16.0 * stride, 1, 1])
    return sizes[: math.prod(shape) // shape[0]].expand(shape[0], -1).reshape(shape)


def _scale_of(reading: InputReading) -> float:
    """Return ``spatial_scale`` of a layer that pools regions."""
    name = {"ROIPooling": "roi_pooling_param", "PSROIPooling": "psroi_pooling_param", "ROIAlign": "roi_align_param"}
    return float(getattr(reading.param, name[reading.reader.type]).spatial_scale) or 1.0


_IGNORING = {"Accuracy": "accuracy_param"}
"""Type of a layer → its message with ``ignore_label``, if that is not ``loss_param``."""

# (type of the layer, number of its bottom) → how to draw the bottom; -1 is the last one.
_DRAWS: Mapping[tuple[str, int], Draw] = {
    ("LSTM", 1): _markers,
    ("RNN", 1): _markers,
    ("LSTMUnit", 2): _markers,
    ("Embed", 0): _below(lambda reading: reading.param.embed_param.input_dim),
    ("BatchReindex", 1): _below(lambda reading: reading.shapes[0][0]),
    ("Filter", -1): _below(lambda reading: 2),
    ("ContrastiveLoss", 2): _below(lambda reading: 2),
    ("Accuracy", 1): _labels(lambda reading: reading.param.accuracy_param.axis),
    ("InfogainLoss", 1): _labels(lambda reading: reading.param.infogain_loss_param.axis),
    **{(kind, 1): _labels(_softmax_axis) for kind in ("SoftmaxWithLoss", "SoftmaxWithLossOHEM")},
    ("SegAccuracy", 1): _below(lambda reading: reading.shapes[0][1]),
    ("FocalLoss", 1): _focal,
    ("SigmoidCrossEntropyLoss", 1): _targets,
    **{(kind, 1): _below(_features) for kind in ("HingeLoss", "MultinomialLogisticLoss")},
    ("MarginInnerProduct", 1): _below(lambda reading: reading.param.margin_inner_product_param.num_output),
    ("CenterLoss", 1): _below(lambda reading: reading.param.center_loss_param.num_output),
    ("Proposal", 2): _image_sizes,
    **{(kind, 1): _regions for kind in ("ROIPooling", "PSROIPooling", "ROIAlign")},
}


class RandomInputs:
    """Random inputs of a net; batches of the same size are equal.

    Args:
        graph: the net.
        picture_blob: the input that takes pictures, prepared in the same way as in training; "": none does.
        pictures: makes these pictures.
    """

    def __init__(self, graph: LayerGraph, picture_blob: str = "", pictures: Pictures | None = None) -> None:
        self._picture_blob, self._pictures = picture_blob, pictures
        self._edges = graph.input_edges
        self._readers = [_reader(graph, edge) for edge in self._edges]

    @property
    def shapes(self) -> Sequence[Shape]:
        """The shapes of the inputs, as in the text."""
        return [edge.shape for edge in self._edges]

    def batch(self, times: int) -> tuple[Tensor, ...]:
        """Return inputs with ``times`` the number of samples in the text."""
        generator = torch.Generator().manual_seed(times)
        made = []
        for edge, reading in zip(self._edges, self._readers, strict=True):
            shape = (times * edge.shape[0], *edge.shape[1:]) if edge.shape else ()
            if self._pictures is not None and edge.blob == self._picture_blob:
                made.append(torch.from_numpy(self._pictures(shape[0], np.random.default_rng(times))))
            elif reading is None:
                made.append(torch.randn(shape, generator=generator))
            else:
                made.append(_draw_of(reading)(shape, times, reading, generator))
        return tuple(made)


def _reader(graph: LayerGraph, edge: Edge) -> InputReading | None:
    """Return the first layer that needs special values of an input, or else the first layer that reads it.

    Returns:
        ``None`` if no layer reads the input.
    """
    readings = list(_readings(graph, edge))
    return next((each for each in readings if _draw_of(each) is not _numbers), readings[0] if readings else None)


def _readings(graph: LayerGraph, edge: Edge) -> Iterator[InputReading]:
    """Yield the layers that read an input, directly or after layers that only copy, slice or reshape it."""
    if edge.consumer is None:
        return
    node = graph.nodes[edge.consumer]
    if node.layer_type.is_view or node.type in ("Split", "Slice"):
        for top in node.tops:
            yield from _readings(graph, graph.edges[top])
    else:
        shapes = [graph.edges[bottom].shape for bottom in node.bottoms]
        yield InputReading(node, node.bottoms.index(edge.index), shapes)


def _draw_of(reading: InputReading) -> Draw:
    kind, place = reading.reader.type, reading.place
    of_last = _DRAWS.get((kind, place - len(reading.shapes)), _numbers)
    return _DRAWS.get((kind, place), of_last)
