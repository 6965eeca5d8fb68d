from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer

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
    check_gradients(body, (2, 3), (2, 3), (2, 3))


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX"])
def test_channels_last_is_kept(operation: str) -> None:
    layer = one_layer(f'type: "Eltwise" eltwise_param {{ operation: {operation} }}', (2, 3, 4, 5), (2, 3, 4, 5))
    x, y = (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
    assert layer(x, y).is_contiguous(memory_format=torch.channels_last)


def test_flops() -> None:
    assert flops_of('type: "Eltwise"', (4, 5), (4, 5), (4, 5)) == 2 * 20
    assert flops_of('type: "Eltwise" eltwise_param { coeff: 1 coeff: 2 }', (4, 5), (4, 5)) == (1 + 2) * 20


def test_refusals() -> None:
    check_refusal(
        'bottom: "a" §bottom: "b" type: "Eltwise" top: "y"',
        'bottoms must have one shape: "a" (2, 3) and "b" (2, 4)',
        a=(2, 3),
        b=(2, 4),
    )
    check_refusal(
        'type: "Eltwise" top: "y" eltwise_param { operation: MAX §coeff: 1 coeff: 2 }',
        "coeff goes with operation: SUM only",
        a=(2, 3),
        b=(2, 3),
    )
    check_refusal(
        'type: "Eltwise" top: "y" eltwise_param { §coeff: 1 coeff: 2 coeff: 3 }',
        "needs one coeff for each bottom (2), not 3",
        a=(2, 3),
        b=(2, 3),
    )
    check_refusal('§bottom: "a" type: "Eltwise" top: "y"', "Eltwise takes at least 2 bottoms, given 1 (a)", a=(2, 3))
