"""Layers that only move elements: Flatten, Permute, Tile, ShuffleChannel and BatchReindex."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import DataError
from tests.nn.layers.refusals import check_refusal
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import spaced
from tests.support.one_layer import gradient_of, one_layer, shapes_of


def test_channels_last_is_flattened_in_logical_order() -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    layer = one_layer('type: "Flatten"', (1, 2, 3, 4))
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), torch.arange(24.0).reshape(1, 24))


def test_one_axis_stays_as_it_is() -> None:
    assert shapes_of('type: "Flatten" flatten_param { axis: 1 end_axis: 1 }', (2, 3, 4)) == ((2, 3, 4),)


def test_a_vector() -> None:
    assert shapes_of('type: "Flatten" flatten_param { axis: 0 }', (5,)) == ((5,),)


Shape = tuple[int, ...]


def permute(*order: int) -> str:
    return f'type: "Permute" permute_param {{ {" ".join(f"order: {axis}" for axis in order)} }}'


@pytest.mark.parametrize(
    ("order", "whole"), [((), (0, 1, 2, 3)), ((0, 2, 3, 1), (0, 2, 3, 1)), ((2,), (2, 0, 1, 3)), ((3, 1), (3, 1, 0, 2))]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_axes_not_named_follow(order: Shape, whole: Shape, layout: torch.memory_format) -> None:
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    top = one_layer(permute(*order), (2, 3, 4, 5))(x.contiguous(memory_format=layout))
    assert shapes_of(permute(*order), (2, 3, 4, 5)) == (top.shape,)
    assert top.is_contiguous()
    for place in ([0, 0, 0, 0], [1, 2, 3, 4], [1, 0, 2, 1]):
        assert top[tuple(place[axis] for axis in whole)] == x[tuple(place)]


def tile(settings: str) -> str:
    return f'type: "Tile" tile_param {{ {settings} }}'


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_copies_stand_side_by_side(axis: int) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    layer = one_layer(tile(f"axis: {axis} tiles: 3"), (2, 3, 4))
    assert torch.equal(layer(x), torch.cat([x, x, x], axis))


def test_shapes() -> None:
    assert shapes_of(tile("axis: 2 tiles: 5"), (2, 3, 4)) == ((2, 3, 20),)


def shuffle(group: int) -> str:
    return f'type: "ShuffleChannel" shuffle_channel_param {{ group: {group} }}'


@pytest.mark.parametrize(
    ("group", "order"), [(1, [0, 1, 2, 3, 4, 5]), (2, [0, 3, 1, 4, 2, 5]), (3, [0, 2, 4, 1, 3, 5])]
)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3), (2, 6, 3, 4), (2, 6, 1, 2, 2)])
def test_channels_are_dealt_out(group: int, order: list[int], shape: Shape) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one_layer(shuffle(group), shape)(x), x[:, order])
    assert shapes_of(shuffle(group), shape) == (shape,)


def test_channels_last_stays_so() -> None:
    x = torch.rand(2, 6, 3, 4).contiguous(memory_format=torch.channels_last)
    top = one_layer(shuffle(2), (2, 6, 3, 4))(x)
    assert top.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(top, x[:, [0, 3, 1, 4, 2, 5]])


REINDEX = 'type: "BatchReindex"'


def test_by_hand() -> None:
    x = torch.tensor([[1.0, 2], [3, 4], [5, 6]], requires_grad=True)
    top = one_layer(REINDEX, (3, 2), (4,))(x, torch.tensor([2.0, 0, 2, 2]))
    top.backward(torch.tensor([[1.0, 0], [2, 0], [4, 1], [8, 3]]))
    assert top.tolist() == [[5, 6], [1, 2], [5, 6], [5, 6]]
    assert gradient_of(x).tolist() == [[2, 0], [0, 0], [13, 4]]


def test_shapes_none_and_memory_formats() -> None:
    assert shapes_of(REINDEX, (4, 2, 3), (7,)) == ((7, 2, 3),)
    assert one_layer(REINDEX, (4, 2), (0,))(torch.ones(4, 2), torch.zeros(0)).shape == (0, 2)
    x, indices = spaced((4, 2, 3, 2)), torch.tensor([1.0, 1, 3])
    layer = one_layer(REINDEX, (4, 2, 3, 2), (3,))
    assert torch.equal(layer(x.contiguous(memory_format=torch.channels_last), indices), x[[1, 1, 3]])


def test_exports_for_any_batch_size() -> None:
    layer = one_layer(REINDEX, (3, 2), (4,))
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (torch.rand(3, 2), torch.ones(4)), dynamic_shapes=(batch,))
    larger = (torch.rand(9, 2), torch.tensor([8.0, 0, 3, 3, 1]))
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


@pytest.mark.parametrize("wrong", [-1, 3])
def test_an_index_without_a_sample(wrong: float) -> None:
    with pytest.raises(DataError) as caught:
        one_layer(REINDEX, (3, 2), (2,))(torch.ones(3, 2), torch.tensor([0, wrong]))
    assert str(caught.value) == (
        f'layer "L": index {wrong:g} at position 1 of "x1" is outside [0, 3), the samples of "x0"'
    )


def test_its_batch_is_not_divided() -> None:
    layer = one_layer(REINDEX, (3, 2), (3,))
    assert layer.mixes_samples(layer.spec, [(3, 2), (3,)]) == "it takes samples from anywhere in the batch"
    assert layer.counts_by_data(layer.spec) == "it takes samples from anywhere in the batch"


@pytest.mark.parametrize(("x", "i"), [((3, 2), (2, 1)), ((), (2,)), ((3,), ())])
def test_reindex_refusals(x: tuple[int, ...], i: tuple[int, ...]) -> None:
    message = f'needs a blob with samples (axis 0) and indices of one axis: "x" {x} and "i" {i}'
    check_refusal(f'§bottom: "x" bottom: "i" top: "y" {REINDEX}', message, x=x, i=i)


def test_force_backward_leaves_the_indices_out() -> None:
    graph = graph_of(f"""force_backward: true
        layer {{ name: "in" type: "Input" top: "x" top: "i" input_param {{ shape {{ dim: 3 }} shape {{ dim: 2 }} }} }}
        layer {{ name: "L" bottom: "x" bottom: "i" top: "y" {REINDEX} }}""")
    assert graph.nodes[1].bottom_needs_diff == (True, False)
