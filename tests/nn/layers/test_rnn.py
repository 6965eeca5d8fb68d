from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.nn.layers.unrolled import check_against
from tests.support.one_layer import one_layer, randomise

T, N, D, H = 4, 3, 2, 3


def plain(x: Tensor, markers: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The equations once more, step by step, from a state of 0."""
    w_x, bias, w_h, w_o, bias_o = weights
    h = torch.zeros(x.shape[1], H)
    outputs = []
    for step in range(len(x)):
        h = torch.tanh(x[step] @ w_x.t() + bias + (markers[step].unsqueeze(1) * h) @ w_h.t())
        outputs.append(torch.tanh(h @ w_o.t() + bias_o))
    return torch.stack(outputs)


def test_is_its_equations_with_every_gradient() -> None:
    layer = randomise(one_layer(f'type: "RNN" recurrent_param {{ num_output: {H} }}', (T, N, D), (T, N)))
    markers = torch.tensor([[0.0, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1]])
    check_against(plain, layer, markers, D)


def test_two_steps_by_hand() -> None:
    layer = one_layer('type: "RNN" recurrent_param { num_output: 1 }', (2, 1, 1), (2, 1))
    with torch.no_grad():
        for blob, value in zip(layer.blobs, [1, 0.5, 2, 3, -1], strict=True):
            blob.fill_(value)
    first = math.tanh(1 + 0.5)
    second = math.tanh(-1 + 0.5 + 2 * first)
    top = layer(torch.tensor([1.0, -1]).reshape(2, 1, 1), torch.tensor([[0.0], [1]]))
    assert top.flatten().tolist() == pytest.approx([math.tanh(3 * first - 1), math.tanh(3 * second - 1)])


def test_fillers_and_shapes() -> None:
    body = """type: "RNN" recurrent_param { num_output: 3 weight_filler { type: "constant" value: 2 }
              bias_filler { type: "constant" value: 1 } }"""
    layer = one_layer(body, (2, 1, 5), (2, 1), (1, 7))
    assert [tuple(blob.shape) for blob in layer.blobs] == [(3, 5), (3,), (3, 7), (3, 3), (3, 3), (3,)]
    assert [blob.unique().tolist() for blob in layer.blobs] == [[2], [1], [2], [2], [2], [1]]
