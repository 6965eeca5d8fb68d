from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import one_layer, shapes_of

Shape = tuple[int, ...]


def argmax(settings: str = "") -> str:
    return f'type: "ArgMax" argmax_param {{ {settings} }}'


def caffes(x: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Indices and values along axis 1 of a matrix: pairs sorted downwards, as in argmax_layer.cpp."""
    rows = [sorted(((v, i) for i, v in enumerate(row)), reverse=True)[:top_k] for row in x.tolist()]
    return torch.tensor([[float(i) for _, i in row] for row in rows]), torch.tensor(
        [[v for v, _ in row] for row in rows]
    )


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_of_equal_elements_the_larger_index_comes_first(top_k: int) -> None:
    x = torch.randint(0, 3, (20, 5), generator=torch.Generator().manual_seed(0)).float()
    indices, values = caffes(x, top_k)
    assert torch.equal(one_layer(argmax(f"top_k: {top_k}"), (20, 5))(x), indices.unsqueeze(1))
    both = one_layer(argmax(f"top_k: {top_k} out_max_val: true"), (20, 5))(x)
    assert torch.equal(both, torch.stack([indices, values], 1))


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("top_k", [1, 3])
def test_along_an_axis(axis: int, top_k: int) -> None:
    x = torch.randint(0, 3, (2, 4, 3), generator=torch.Generator().manual_seed(1)).float()
    indices, values = caffes(x.transpose(1, 2).reshape(6, 4), top_k)
    settings = f"axis: {axis} top_k: {top_k}"
    found = one_layer(argmax(settings), (2, 4, 3))(x)
    assert torch.equal(found, indices.reshape(2, 3, top_k).transpose(1, 2))
    found = one_layer(argmax(f"{settings} out_max_val: true"), (2, 4, 3))(x)
    assert torch.equal(found, values.reshape(2, 3, top_k).transpose(1, 2))


@pytest.mark.parametrize(
    ("settings", "bottom", "top"),
    [
        ("", (3,), (3, 1, 1)),
        ("out_max_val: true", (3,), (3, 2, 1)),
        ("top_k: 4", (3, 4), (3, 1, 4)),
        ("out_max_val: true top_k: 7", (3, 4, 2), (3, 2, 7)),
        ("out_max_val: true", (3, 4, 2, 2, 5), (3, 2, 1, 1, 1)),
        ("axis: 0 top_k: 2", (3,), (2,)),
        ("axis: -1 top_k: 5", (3, 4, 2, 2, 5), (3, 4, 2, 2, 5)),
    ],
)
def test_shapes(settings: str, bottom: Shape, top: Shape) -> None:
    assert shapes_of(argmax(settings), bottom) == (top,)
    x = torch.rand(bottom, dtype=torch.float64, requires_grad=True)
    found = one_layer(argmax(settings), bottom)(x)
    assert (found.shape, found.dtype, found.requires_grad) == (top, torch.float64, False)


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        ("§axis: 3", (2, 3, 4), 'axis 3 is outside [-3, 3), the axes of bottom "a" (2, 3, 4)'),
        ("§top_k: 0", (2, 3), 'top_k 0 is outside [1, 3], the elements of each sample of bottom "a" (2, 3)'),
        ("§top_k: 13", (2, 3, 4), 'top_k 13 is outside [1, 12], the elements of each sample of bottom "a" (2, 3, 4)'),
        ("axis: 2 §top_k: 5", (2, 3, 4), 'top_k 5 is outside [1, 4], the elements of axis 2 of bottom "a" (2, 3, 4)'),
    ],
)
def test_refusals(settings: str, shape: Shape, message: str) -> None:
    check_refusal(f'type: "ArgMax" top: "y" argmax_param {{ {settings} }}', message, a=shape)
