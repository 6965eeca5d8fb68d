from __future__ import annotations

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import flops_of, one_layer, shapes_of, tops_of


def test_old_form_of_the_axis() -> None:
    body = 'type: "Slice" slice_param { slice_dim: 0 slice_point: 1 }'
    assert shapes_of(body, (4, 3), tops=2) == ((1, 3), (3, 3))
    parts = tops_of(one_layer(body, (3, 1), tops=2), torch.tensor([[1], [2], [3]]))
    assert [part.tolist() for part in parts] == [[[1]], [[2], [3]]]


def test_negative_axis() -> None:
    body = 'type: "Slice" slice_param { axis: -1 }'
    assert shapes_of(body, (2, 3, 8), tops=4) == ((2, 3, 2),) * 4
    parts = tops_of(one_layer(body, (1, 4), tops=2), torch.tensor([[1, 2, 3, 4]]))
    assert [part.tolist() for part in parts] == [[[1, 2]], [[3, 4]]]


def test_an_in_place_layer_may_follow() -> None:
    x = torch.tensor([[1.0, -2, 3, -4]], requires_grad=True)
    first, second = tops_of(one_layer('type: "Slice"', (1, 4), tops=2), x * 1)
    second.relu_()
    (first.sum() + second.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1, 1, 1, 0]]


def test_copying_costs_no_flops() -> None:
    assert flops_of('type: "Slice"', (2, 3)) == 0


def test_refusals() -> None:
    tops = 'type: "Slice" top: "p" top: "q" top: "r"'
    check_refusal(
        f"{tops} §slice_param {{ axis: 1 }}",
        '3 tops cannot share axis 1 of bottom "a" (2, 7) equally; give slice_points',
        a=(2, 7),
    )
    check_refusal(
        f"{tops} slice_param {{ §slice_point: 1 }}", "needs one slice_point fewer than tops (2), not 1", a=(2, 7)
    )
    for points in ([4, 4], [0, 2], [5, 3], [3, 7], [3, 9]):
        check_refusal(
            f"{tops} slice_param {{ §slice_point: {points[0]} slice_point: {points[1]} }}",
            f'slice_points {points} must ascend between 0 and 7, axis 1 of bottom "a" (2, 7)',
            a=(2, 7),
        )
    check_refusal(
        f"{tops} slice_param {{ §axis: -3 }}", 'axis -3 is outside [-2, 2), the axes of bottom "a" (2, 7)', a=(2, 7)
    )
    check_refusal(
        f"{tops} slice_param {{ axis: 1 §slice_dim: 1 }}", "give axis or slice_dim (its old form), not both", a=(2, 7)
    )
