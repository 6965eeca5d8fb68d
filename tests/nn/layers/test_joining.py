"""Layers that join or divide blobs: Concat, Eltwise, Axpy, Slice, Split and Silence."""

from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import gradient_of, one_layer, one_layer_graph, shapes_of, tops_of


def test_concat_old_form_of_the_axis() -> None:
    assert shapes_of('type: "Concat" concat_param { concat_dim: 0 }', (2, 3), (1, 3)) == ((3, 3),)
    layer = one_layer('type: "Concat" concat_param { concat_dim: 0 }', (1, 2), (1, 2))
    assert layer(torch.tensor([[1, 2]]), torch.tensor([[3, 4]])).tolist() == [[1, 2], [3, 4]]


def test_one_bottom_is_not_copied() -> None:
    x = torch.rand(2, 3)
    assert one_layer('type: "Concat"', (2, 3))(x).data_ptr() == x.data_ptr()


def test_concat_channels_last_is_kept() -> None:
    layer = one_layer('type: "Concat"', (2, 3, 4, 5), (2, 2, 4, 5))
    x, y = (torch.rand(2, c, 4, 5).to(memory_format=torch.channels_last) for c in (3, 2))
    top = layer(x, y)
    assert top.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(top[:, :3], x)
    assert torch.equal(top[:, 3:], y)


FACTORS = (torch.tensor([2.0, 0, 3]), torch.tensor([5.0, 7, 0]), torch.tensor([1.0, 4, 6]))


def products_gradients(stable: str) -> list[torch.Tensor]:
    body = f'type: "Eltwise" eltwise_param {{ operation: PROD stable_prod_grad: {stable} }}'
    bottoms = [factor.clone().requires_grad_() for factor in FACTORS]
    top = one_layer(body, (3,), (3,), (3,))(*bottoms)
    assert torch.equal(top, torch.tensor([10.0, 0, 0]))
    return list(torch.autograd.grad(top.sum(), bottoms))


def test_gradient_of_a_product_with_zeros() -> None:
    # The other two factors multiplied ...
    stable = torch.tensor([[5.0, 28, 0], [2, 0, 18], [10, 0, 0]])
    torch.testing.assert_close(torch.stack(products_gradients("true")), stable)
    # ... or the product divided by the factor: 0 / 0 where that is 0.
    nan = torch.nan
    divided = torch.tensor([[5.0, nan, 0], [2, 0, nan], [10, 0, 0]])
    torch.testing.assert_close(torch.stack(products_gradients("false")), divided, equal_nan=True)


def test_gradient_of_a_divided_product_for_one_bottom_only() -> None:
    body = 'type: "Eltwise" eltwise_param { operation: PROD stable_prod_grad: false }'
    check_gradients(body, (2, 3), (2, 3), (2, 3), constant=(0, 2))


def test_max_of_equal_elements() -> None:
    # Bottom 1 wins over 0; a later one must be strictly larger.
    bottoms = [torch.tensor(values, requires_grad=True) for values in ([1.0, 2, 2, 0], [1.0, 1, 1, 0], [1.0, 2, 3, 0])]
    top = one_layer('type: "Eltwise" eltwise_param { operation: MAX }', (4,), (4,), (4,))(*bottoms)
    assert top.tolist() == [1, 2, 3, 0]
    gradients = [diff.tolist() for diff in torch.autograd.grad(top.sum(), bottoms)]
    assert gradients == [[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]]


def test_coefficients() -> None:
    body = 'type: "Eltwise" eltwise_param { coeff: 0.5 coeff: -1 coeff: 1 }'
    assert one_layer(body, (3,), (3,), (3,))(*FACTORS).tolist() == [-3, -3, 7.5]


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX"])
def test_eltwise_channels_last_is_kept(operation: str) -> None:
    layer = one_layer(f'type: "Eltwise" eltwise_param {{ operation: {operation} }}', (2, 3, 4, 5), (2, 3, 4, 5))
    x, y = (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
    assert layer(x, y).is_contiguous(memory_format=torch.channels_last)


AXPY = 'type: "Axpy"'
Shape = tuple[int, ...]


def test_by_hand() -> None:
    factors = torch.tensor([[2.0, -1]])
    x, y = torch.tensor([[[1.0, 2], [3, 4]]]), torch.tensor([[[10.0, 20], [30, 40]]])
    assert one_layer(AXPY, (1, 2), (1, 2, 2), (1, 2, 2))(factors, x, y).tolist() == [[[12, 24], [27, 36]]]
    assert y.tolist() == [[[10, 20], [30, 40]]]


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3), (2, 3, 4), (2, 3, 5)),
        ((2, 4), (2, 3, 4), (2, 3, 4)),
        ((1, 3), (2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
        ((2,), (2, 3, 4), (2, 3, 4)),
        ((2,), (2,), (2,)),
    ],
)
def test_axpy_refusals(shapes: tuple[Shape, Shape, Shape]) -> None:
    a, x, y = shapes
    check_refusal(
        '§bottom: "a" bottom: "x" bottom: "y" type: "Axpy" top: "z"',
        f'needs factors (N, channels) and two blobs of one shape (N, channels, …): "a" {a} and "x" {x} and "y" {y}',
        a=a,
        x=x,
        y=y,
    )


def test_slice_old_form_of_the_axis() -> None:
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
    assert gradient_of(x).tolist() == [[1, 1, 1, 0]]


def test_copies_share_data_but_not_diffs() -> None:
    x = torch.rand(2, 3, requires_grad=True)
    copies = tops_of(one_layer('type: "Split"', (2, 3), tops=3), x)
    assert len({id(copy) for copy in (x, *copies)}) == 4
    assert {copy.data_ptr() for copy in copies} == {x.data_ptr()}
    for copy in copies:
        copy.retain_grad()
    (copies[0] + 2 * copies[1]).sum().backward()
    assert torch.equal(gradient_of(copies[0]), torch.ones(2, 3))
    assert torch.equal(gradient_of(copies[1]), torch.full((2, 3), 2.0))
    assert copies[2].grad is None
    assert torch.equal(gradient_of(x), torch.full((2, 3), 3.0))


def test_it_makes_nothing() -> None:
    assert one_layer('type: "Silence"', (2, 3), (4,), tops=0)(torch.rand(2, 3), torch.rand(4)) == ()


def test_silence_flops() -> None:
    assert one_layer_graph('type: "Silence"', (2, 3), tops=0).flops == 0
