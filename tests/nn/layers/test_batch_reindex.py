from __future__ import annotations

import pytest
import torch

from bpt.base.errors import DataError
from tests.nn.layers.refusals import check_refusal
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, shapes_of

REINDEX = 'type: "BatchReindex"'


def test_by_hand() -> None:
    x = torch.tensor([[1.0, 2], [3, 4], [5, 6]], requires_grad=True)
    top = one_layer(REINDEX, (3, 2), (4,))(x, torch.tensor([2.0, 0, 2, 2]))
    top.backward(torch.tensor([[1.0, 0], [2, 0], [4, 1], [8, 3]]))
    assert top.tolist() == [[5, 6], [1, 2], [5, 6], [5, 6]]
    assert x.grad is not None
    assert x.grad.tolist() == [[2, 0], [0, 0], [13, 4]]


def test_gradients() -> None:
    check_gradients(REINDEX, spaced((4, 2, 3)), torch.tensor([3.0, 3, 0, 1, 3]), constant=(1,))


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
def test_refusals(x: tuple[int, ...], i: tuple[int, ...]) -> None:
    message = f'needs a blob with samples (axis 0) and indices of one axis: "x" {x} and "i" {i}'
    check_refusal(f'§bottom: "x" bottom: "i" top: "y" {REINDEX}', message, x=x, i=i)


def test_force_backward_leaves_the_indices_out() -> None:
    graph = graph_of(f"""force_backward: true
        layer {{ name: "in" type: "Input" top: "x" top: "i" input_param {{ shape {{ dim: 3 }} shape {{ dim: 2 }} }} }}
        layer {{ name: "L" bottom: "x" bottom: "i" top: "y" {REINDEX} }}""")
    assert graph.nodes[1].bottom_needs_diff == (True, False)
