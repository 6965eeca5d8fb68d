"""One layer, made from the text between its braces and the shapes of its bottoms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers import Layer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of

Shape = tuple[int, ...]


def one_layer_graph(body: str, *bottoms: Shape, phase: int = pb.TRAIN, tops: int = 1) -> LayerGraph:
    """A net of the layer "L" with ``body`` (``type: "ReLU" …``), bottoms "x0", … and tops "y0", …."""
    inputs = "".join(f' top: "x{index}"' for index in range(len(bottoms)))
    shapes = "".join(" shape {" + "".join(f" dim: {size}" for size in shape) + " }" for shape in bottoms)
    names = "".join(f' bottom: "x{index}"' for index in range(len(bottoms)))
    names += "".join(f' top: "y{index}"' for index in range(tops))
    text = f"""
        force_backward: true
        layer {{ name: "in" type: "Input" {inputs} input_param {{ {shapes} }} }}
        layer {{ name: "L" {names} {body} }}"""
    return graph_of(text, phase)


def one_layer(
    body: str, *bottoms: Shape, phase: int = pb.TRAIN, tops: int = 1, context: PassContext | None = None
) -> Layer:
    """The layer itself; its parameters are as the fillers leave them."""
    layer = Net(one_layer_graph(body, *bottoms, phase=phase, tops=tops), context).layers[-1]
    assert isinstance(layer, Layer)
    return layer


def gradient_of(tensor: Tensor) -> Tensor:
    """The gradient that a backward pass has left."""
    assert tensor.grad is not None
    return tensor.grad


def randomise(layer: Layer, seed: int = 1) -> Layer:
    """Set all parameters to numbers in [0.5, 1.5): valid for variances and weights, too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for blob in layer.blobs:
            blob.copy_(torch.rand(blob.shape, generator=generator) + 0.5)
    return layer


def tops_of(layer: Layer, *bottoms: Tensor) -> tuple[Tensor, ...]:
    """The tops as a tuple, whatever their number."""
    tops = layer(*bottoms)
    return (tops,) if isinstance(tops, Tensor) else tuple(tops)


def shapes_of(body: str, *bottoms: Shape, tops: int = 1) -> tuple[Shape, ...]:
    """The shapes that the graph infers for the tops."""
    graph = one_layer_graph(body, *bottoms, tops=tops)
    return tuple(graph.edges[top].shape for top in graph.nodes[-1].tops)


def flops_of(body: str, *bottoms: Shape, phase: int = pb.TRAIN) -> int:
    """What the graph says one forward pass costs."""
    return one_layer_graph(body, *bottoms, phase=phase).nodes[-1].flops


def error_of(body: str, *bottoms: Shape, tops: int = 1) -> str:
    """The message of the LayerError that making the graph raises, without the layer's name in front."""
    with pytest.raises(LayerError) as caught:
        one_layer_graph(body, *bottoms, tops=tops)
    message = str(caught.value)
    assert message.startswith('layer "L": ')
    return message.removeprefix('layer "L": ')
