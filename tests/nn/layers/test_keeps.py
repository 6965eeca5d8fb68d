"""How much memory layers say that training keeps of their tops (``Layer.keeps``), held against what autograd keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.layers import Layer
from tests.support.one_layer import one_layer, tops_of

BOTTOM = (2, 4, 6, 6)


def bytes_kept(layer: Layer, *bottoms: Tensor) -> int:
    """Of what is neither a bottom's memory nor a parameter's, the top's own included."""
    seen: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        seen.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        seen += [layer.overwrite(0, *bottoms)] if layer.overwrites else tops_of(layer, *bottoms)
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in seen}
    own = {tensor.untyped_storage().data_ptr() for tensor in (*bottoms, *layer.blobs)}
    return sum(size for place, size in storages.items() if place not in own)


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ('type: "Convolution" convolution_param { num_output: 5 kernel_size: 3 }', 1),
        ('type: "ReLU"', 1),
        ('type: "ReLU" relu_param { negative_slope: -0.5 }', 1),
        ('type: "ReLU6"', 1),
        ('type: "TanH"', 1),
        ('type: "Dropout"', 1),
        ('type: "Eltwise"', 2),
        ('type: "LRN"', 1),
        ('type: "Pooling" pooling_param { pool: MAX kernel_size: 2 stride: 2 }', 1),
        ('type: "Pooling" pooling_param { pool: AVE kernel_size: 2 stride: 2 }', 1),
    ],
)
def test_what_training_keeps(body: str, number: int) -> None:
    layer = one_layer(body, *[BOTTOM] * number)
    bottoms = [torch.randn(BOTTOM, requires_grad=True) * 1 for _ in range(number)]
    elements = tops_of(layer, *bottoms)[0].numel()
    assert bytes_kept(layer, *bottoms) == type(layer).saved_for_backward(layer.spec) * 4 * elements
