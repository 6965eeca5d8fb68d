from __future__ import annotations

import math

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import gradient_of, one_layer, tops_of

UNIT = 'type: "LSTMUnit"'


def test_by_hand() -> None:
    # i = 1/2, f = 3/4, o = 1/4, g = tanh(1); the second stream begins, so that its old cell does not count.
    gates = torch.tensor([0, math.log(3), -math.log(3), 1]).expand(1, 2, 4)
    before = torch.tensor([8.0, 8]).reshape(1, 2, 1)
    cells, outputs = tops_of(
        one_layer(UNIT, (1, 2, 1), (1, 2, 4), (1, 2), tops=2), before, gates, torch.tensor([[1.0, 0]])
    )
    expected = [6 + math.tanh(1) / 2, math.tanh(1) / 2]
    assert cells.flatten().tolist() == pytest.approx(expected)
    assert outputs.flatten().tolist() == pytest.approx([math.tanh(cell) / 4 for cell in expected])


def test_a_marker_between_0_and_1_has_caffes_gradient() -> None:
    # f = marker · sigmoid(x), and Caffe's derivative by x is f · (1 - f): here 1/4 · 3/4.
    gates = torch.zeros(1, 1, 4, requires_grad=True)
    before = torch.ones(1, 1, 1, requires_grad=True)
    cells, _ = tops_of(one_layer(UNIT, (1, 1, 1), (1, 1, 4), (1, 1), tops=2), before, gates, torch.tensor([[0.5]]))
    cells.sum().backward()
    assert gradient_of(before).item() == 0.25
    assert gradient_of(gates).flatten().tolist() == [0, 0.25 * 0.75, 0, 0.5]


def test_no_samples() -> None:
    layer = one_layer(UNIT, (1, 0, 2), (1, 0, 8), (1, 0), tops=2)
    tops = tops_of(layer, torch.zeros(1, 0, 2), torch.zeros(1, 0, 8), torch.zeros(1, 0))
    assert [top.shape for top in tops] == [(1, 0, 2)] * 2


def test_exports_for_any_number_of_streams() -> None:
    layer = one_layer(UNIT, (1, 2, 3), (1, 2, 12), (1, 2), tops=2)
    streams = ({1: torch.export.Dim.DYNAMIC},) * 3
    example = (torch.rand(1, 2, 3), torch.rand(1, 2, 12), torch.ones(1, 2))
    program = torch.export.export(layer, example, dynamic_shapes=(streams,))
    larger = (torch.rand(1, 5, 3), torch.rand(1, 5, 12), torch.ones(1, 5))
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


def test_its_batch_is_not_divided() -> None:
    layer = one_layer(UNIT, (1, 2, 3), (1, 2, 12), (1, 2), tops=2)
    reason = "axis 0 of its bottoms is the time, and the samples are along axis 1"
    assert layer.mixes_samples(layer.spec, [(1, 2, 3), (1, 2, 12), (1, 2)]) == reason
    assert layer.counts_by_data(layer.spec) == reason


@pytest.mark.parametrize(
    ("c", "x", "m"),
    [((2, 3), (1, 2, 12), (1, 2)), ((2, 2, 3), (2, 2, 12), (2, 2)), ((1, 2, 3), (1, 2, 9), (1, 2)),
     ((1, 2, 3), (1, 2, 12), (2,))],
)  # fmt: skip
def test_refusals(c: tuple[int, ...], x: tuple[int, ...], m: tuple[int, ...]) -> None:
    message = f'needs bottoms (1, N, H), (1, N, 4H) and (1, N), of one time step: "c" {c} and "x" {x} and "m" {m}'
    check_refusal(f'§bottom: "c" bottom: "x" bottom: "m" top: "y" top: "h" {UNIT}', message, c=c, x=x, m=m)
