from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.pass_context import PassContext
from tests.nn.layers.refusals import check_refusal
from tests.support.layer_ranks import on_ranks, rows_of, run_layer, whole_of
from tests.support.one_layer import error_of, one_layer, shapes_of

Shape = tuple[int, ...]


def reshape(*dims: int, settings: str = "") -> str:
    shape = " ".join(f"dim: {dim}" for dim in dims)
    return f'type: "Reshape" reshape_param {{ shape {{ {shape} }} {settings} }}'


CASES = [
    ((), "axis: 1 num_axes: 0", (2, 3), (2, 3)),
    ((), "", (1, 1), ()),
    ((1, 1), "", (), (1, 1)),
    ((-1,), "", (2, 3, 4), (24,)),
    ((0, -1), "", (2, 3, 4), (2, 12)),
    ((0, 0, 2, -1), "", (2, 3, 4), (2, 3, 2, 2)),
    ((-1, 0), "", (2, 3, 4), (8, 3)),
    ((2, -1, 6), "", (2, 3, 4), (2, 2, 6)),
    ((3, 8), "", (2, 3, 4), (3, 8)),
    ((12,), "axis: 1", (2, 3, 4), (2, 12)),
    ((-1,), "axis: -3 num_axes: 2", (2, 3, 4), (2, 12)),
    ((2, 0), "axis: 1 num_axes: 1", (2, 6, 3), (2, 2, 3, 3)),  # 0 copies an axis that stays, too, as in Caffe
    ((-1, 0), "axis: 1 num_axes: 1", (2, 6, 3), (2, 2, 3, 3)),
    ((1,), "axis: 0 num_axes: 0", (2, 3), (1, 2, 3)),
    ((1, -1), "axis: -1 num_axes: 0", (2, 3), (2, 3, 1, 1)),
]


@pytest.mark.parametrize(("dims", "settings", "bottom", "top"), CASES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_elements_keep_their_order(
    dims: Shape, settings: str, bottom: Shape, top: Shape, layout: torch.memory_format
) -> None:
    body = reshape(*dims, settings=settings)
    assert shapes_of(body, bottom) == (top,)
    x = torch.arange(float(torch.Size(bottom).numel())).reshape(bottom)
    given = x.contiguous(memory_format=layout) if x.dim() == 4 else x
    assert torch.equal(one_layer(body, bottom)(given), x.reshape(top))


@pytest.mark.parametrize(
    ("dims", "settings", "top"),
    [
        ((0, -1), "", (0, 12)),
        ((-1, 12), "", (0, 12)),
        ((0, 0, 2, -1), "", (0, 3, 2, 2)),
        ((2, -1), "axis: 2", (0, 3, 2, 2)),
    ],
)
def test_no_samples(dims: Shape, settings: str, top: Shape) -> None:
    body = reshape(*dims, settings=settings)
    assert shapes_of(body, (0, 3, 4)) == (top,)
    assert one_layer(body, (0, 3, 4))(torch.zeros(0, 3, 4)).shape == top


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("shape { dim: 0 §dim: -2 }", "dim must be at least -1, not -2"),
        ("shape { dim: -1 dim: 0 §dim: -1 }", "only one dim may be -1: what remains"),
        ("shape { dim: 0 dim: 1 §dim: 0 }", 'dim 0 has no axis 2 to copy from bottom "a" (2, 6)'),
        (
            "§shape { dim: 0 dim: 5 }",
            'bottom "a" (2, 6) of 12 elements cannot have shape (2, 5); its dims multiply to 10; a dim of -1 is what '
            "remains, 0 copies the bottom's",
        ),
        (
            "§shape { dim: 5 dim: -1 }",
            'bottom "a" (2, 6) of 12 elements cannot have shape (5, -1); the other dims must divide 12',
        ),
        (
            "axis: 1 §shape { dim: 4 dim: -1 }",
            'bottom "a" (2, 6) of 12 elements cannot have shape (2, 4, -1); the other dims must divide 12',
        ),
        ("§axis: 3", 'axis 3 is outside [-3, 2], the places before, between and after the axes of bottom "a" (2, 6)'),
        ("§axis: -4", 'axis -4 is outside [-3, 2], the places before, between and after the axes of bottom "a" (2, 6)'),
        ("§num_axes: -2", "num_axes must be at least 0, or -1 for all from axis on; not -2"),
        ("axis: 1 §num_axes: 2", 'num_axes 2 from axis 1 on reaches over the end of bottom "a" (2, 6)'),
    ],
)
def test_refusals(body: str, message: str) -> None:
    check_refusal(f'type: "Reshape" top: "y" reshape_param {{ {body} }}', message, a=(2, 6))


def test_no_shape() -> None:
    message = 'bottom "x0" (2, 6) of 12 elements cannot have shape (); give the dims in shape'
    assert error_of('type: "Reshape"', (2, 6)) == message


@pytest.mark.parametrize("dims", [(7, 2, 3), (7, -1), (0, 3, -1), (-1, 6)])
@pytest.mark.parametrize("counts", [(4, 3), (1, 0, 6)])
def test_a_rank_has_fewer_samples_than_the_text_says(dims: Shape, counts: tuple[int, ...]) -> None:
    body = reshape(*dims)
    whole = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))
    layer = one_layer(body, (7, 6))
    assert layer.mixes_samples(layer.spec, [(7, 6)]) == ""
    (top,), (diff,), _, _ = run_layer(layer, [whole], 1)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        rows = rows_of(context.split(7))
        return run_layer(one_layer(body, (7, 6), context=context), [whole[rows]], 1, rows)

    ranks = on_ranks(counts, run)
    torch.testing.assert_close(whole_of([rank[0][0] for rank in ranks], counts), top)
    torch.testing.assert_close(whole_of([rank[1][0] for rank in ranks], counts), diff)
