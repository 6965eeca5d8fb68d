from __future__ import annotations

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from tests.support.one_layer import flops_of, gradient_of, one_layer, one_layer_graph, randomise


def bn(settings: str = "") -> str:
    return f'type: "BatchNorm" batch_norm_param {{ {settings} }}'


def test_statistics_are_not_learnable() -> None:
    graph = one_layer_graph(bn(), (2, 3, 4))
    assert [(param.shape, param.learnable, param.lr_mult) for param in graph.params] == [
        ((3,), False, 0),
        ((3,), False, 0),
        ((1,), False, 0),
    ]


def test_statistics_by_hand() -> None:
    # Batch (1, 3): mean 2, unbiased variance 2. Batch (4, 8): mean 6, unbiased variance 8. Fraction 0.5:
    # means 0.5 · 2 + 6 = 7, variances 0.5 · 2 + 8 = 9, weight 0.5 · 1 + 1 = 1.5.
    layer = one_layer(bn("moving_average_fraction: 0.5 eps: 0"), (2, 1))
    for batch in ([[1.0], [3.0]], [[4.0], [8.0]]):
        assert torch.equal(layer(torch.tensor(batch)), torch.tensor([[-1.0], [1.0]]))
    assert [blob.tolist() for blob in layer.blobs] == [[7.0], [9.0], [1.5]]
    # Stored mean 7 / 1.5 = 14 / 3 and variance 6: (14 / 3 + sqrt 6) becomes 1.
    layer.eval()
    torch.testing.assert_close(layer(torch.tensor([[14 / 3 + 6**0.5]])), torch.tensor([[1.0]]))
    assert [blob.tolist() for blob in layer.blobs] == [[7.0], [9.0], [1.5]]


def test_one_element_a_channel() -> None:
    # Its deviation from itself is 0; Caffe takes the variance for the statistics as it is, 0.
    layer = randomise(one_layer(bn("moving_average_fraction: 0.5"), (1, 3)))
    before = [blob.clone() for blob in layer.blobs]
    x = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    top = layer(x)
    top.sum().backward()
    assert torch.equal(top, torch.zeros(1, 3))
    assert torch.equal(gradient_of(x), torch.zeros(1, 3))
    torch.testing.assert_close(layer.blobs[0].data, before[0] / 2 + x[0].detach())
    torch.testing.assert_close(layer.blobs[1].data, before[1] / 2)
    torch.testing.assert_close(layer.blobs[2].data, before[2] / 2 + 1)


def test_global_statistics_of_weight_0_are_0() -> None:
    layer = one_layer(bn("use_global_stats: true eps: 0.25"), (2, 1))
    with torch.no_grad():
        layer.blobs[0].fill_(3)
    assert torch.equal(layer(torch.tensor([[1.0], [2.0]])), torch.tensor([[2.0], [4.0]]))


@pytest.mark.parametrize(
    ("settings", "phase", "stored"),
    [
        ("", pb.TRAIN, False),
        ("", pb.TEST, True),
        ("use_global_stats: true", pb.TRAIN, True),
        ("use_global_stats: false", pb.TEST, False),
    ],
)
def test_which_statistics(settings: str, phase: int, stored: bool) -> None:
    layer = one_layer(bn(settings), (4, 3), phase=phase)
    layer(torch.rand(4, 3))
    assert layer.blobs[2].item() == (0 if stored else 1)
    # subtract and divide; and a sum for the mean, a square and a sum for the variance
    assert flops_of(bn(settings), (4, 3), phase=phase) == 12 * (2 if stored else 5)
