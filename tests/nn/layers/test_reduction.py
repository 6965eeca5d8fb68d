from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.pass_context import PassContext
from tests.support.layer_ranks import on_ranks, rows_of, run_layer, whole_of
from tests.support.one_layer import gradient_of, one_layer, shapes_of

Shape = tuple[int, ...]
OPERATIONS = ["SUM", "ASUM", "SUMSQ", "MEAN"]


def reduction(settings: str = "") -> str:
    return f'type: "Reduction" reduction_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("operation", "expected"), [("SUM", [4.0, -1]), ("ASUM", [8, 5]), ("SUMSQ", [30, 13]), ("MEAN", [1, -0.25])]
)
@pytest.mark.parametrize("axis", [1, -2])
def test_by_hand(operation: str, expected: list[float], axis: int) -> None:
    x = torch.tensor([[[1.0, -2], [5, 0]], [[0, -3], [2, 0]]])
    layer = one_layer(reduction(f"operation: {operation} axis: {axis} coeff: -2"), (2, 2, 2))
    assert layer(x).tolist() == [-2 * number for number in expected]


def test_the_gradient_of_asum_at_zero_is_zero() -> None:
    x = torch.tensor([-3.0, 0, 2], requires_grad=True)
    one_layer(reduction("operation: ASUM"), (3,))(x).backward()
    assert gradient_of(x).tolist() == [-1, 0, 1]


@pytest.mark.parametrize(("axis", "top"), [(0, ()), (1, (2,)), (2, (2, 3)), (-1, (2, 3)), (-3, ())])
def test_shapes(axis: int, top: Shape) -> None:
    assert shapes_of(reduction(f"axis: {axis}"), (2, 3, 4)) == (top,)


def test_the_mean_of_no_samples_is_zero() -> None:
    assert one_layer(reduction("operation: MEAN"), (0, 3))(torch.zeros(0, 3)).item() == 0


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("counts", [(4, 3), (1, 0, 6)])
def test_ranks_have_summands_of_the_whole_batchs_number(operation: str, counts: tuple[int, ...]) -> None:
    body = reduction(f"operation: {operation} coeff: 2")
    whole = torch.randn(7, 3, 2, generator=torch.Generator().manual_seed(1))
    layer = one_layer(body, (7, 3, 2))
    assert layer.mixes_samples(layer.spec, [(7, 3, 2)]) == ""
    (number,), (diff,), _, _ = run_layer(layer, [whole], 1)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        rows = rows_of(context.split(7))
        return run_layer(one_layer(body, (7, 3, 2), context=context), [whole[rows]], 1, rows)

    ranks = on_ranks(counts, run)
    torch.testing.assert_close(sum(rank[0][0] for rank in ranks), number)
    torch.testing.assert_close(whole_of([rank[1][0] for rank in ranks], counts), diff)
