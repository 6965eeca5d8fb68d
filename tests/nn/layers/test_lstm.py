from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.nn.layers.unrolled import check_against
from tests.support.one_layer import one_layer, randomise

T, N, D, H = 5, 3, 4, 2


def plain(x: Tensor, markers: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The equations once more, gate by gate and step by step, from states of 0."""
    w_x, bias, w_h = weights
    h, c = torch.zeros(x.shape[1], H), torch.zeros(x.shape[1], H)
    outputs = []
    for step in range(len(x)):
        marker = markers[step].unsqueeze(1)
        sums = [
            x[step] @ w_x[gate * H : gate * H + H].t()
            + bias[gate * H : gate * H + H]
            + (marker * h) @ w_h[gate * H : gate * H + H].t()
            for gate in range(4)
        ]
        i, f, o = (1 / (1 + torch.exp(-s)) for s in sums[:3])
        c = marker * f * c + i * torch.tanh(sums[3])
        h = o * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def test_is_its_equations_with_every_gradient() -> None:
    layer = randomise(one_layer(f'type: "LSTM" recurrent_param {{ num_output: {H} }}', (T, N, D), (T, N)))
    markers = torch.tensor([[0.0, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]])
    check_against(plain, layer, markers, D)


def test_two_steps_by_hand() -> None:
    # One input, one cell. W_x is 0 but for g; biases open the gates i and o by half and f by 3/4.
    layer = one_layer('type: "LSTM" recurrent_param { num_output: 1 }', (2, 1, 1), (2, 1))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[0.0], [0], [0], [1]]))
        layer.blobs[1].copy_(torch.tensor([0, math.log(3), 0, 0]))
        layer.blobs[2].zero_()
    x = torch.tensor([1.0, 2]).reshape(2, 1, 1)
    first = math.tanh(1) / 2
    second = 3 / 4 * first + math.tanh(2) / 2
    tops = layer(x, torch.tensor([[0.0], [1]])).flatten().tolist()
    assert tops == pytest.approx([math.tanh(first) / 2, math.tanh(second) / 2])
    begun = layer(x, torch.tensor([[0.0], [0]])).flatten().tolist()
    assert begun == pytest.approx([math.tanh(first) / 2, math.tanh(math.tanh(2) / 2) / 2])


def test_fillers_and_shapes() -> None:
    body = """type: "LSTM" recurrent_param { num_output: 3 weight_filler { type: "constant" value: 2 }
              bias_filler { type: "constant" value: 1 } }"""
    layer = one_layer(body, (2, 1, 5), (2, 1), (1, 7))
    assert [tuple(blob.shape) for blob in layer.blobs] == [(12, 5), (12,), (12, 7), (12, 3)]
    assert [blob.unique().tolist() for blob in layer.blobs] == [[2], [1], [2], [2]]
