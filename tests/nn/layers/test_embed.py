from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.nn.pass_context import PassContext
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import spaced
from tests.support.layer_ranks import on_ranks, rows_of, run_layer, whole_of
from tests.support.one_layer import flops_of, one_layer, randomise, shapes_of

EMBED = 'type: "Embed" embed_param { num_output: 3 input_dim: 4 }'
PLAIN = 'type: "Embed" embed_param { num_output: 3 input_dim: 4 bias_term: false }'


def test_rows_of_the_table_plus_the_bias() -> None:
    layer = one_layer(EMBED, (2, 2))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.arange(12.0).reshape(4, 3))
        layer.blobs[1].copy_(torch.tensor([0.5, 0, -1]))
    top = layer(torch.tensor([[3.0, 0], [1.9, 3]]))  # a fraction is cut off, as in Caffe
    assert top.tolist() == [[[9.5, 10, 10], [0.5, 1, 1]], [[3.5, 4, 4], [9.5, 10, 10]]]


def test_gradients_add_up_over_equal_indices_and_passes() -> None:
    layer, indices = one_layer(EMBED, (3,)), torch.tensor([2.0, 0, 2])
    diff = torch.tensor([[1.0, 2, 3], [4, 5, 6], [10, 20, 30]])
    for passes in (1, 2):
        layer(indices).backward(diff)
        assert layer.blobs[0].grad.tolist() == [
            [4 * passes, 5 * passes, 6 * passes],
            [0, 0, 0],
            [11 * passes, 22 * passes, 33 * passes],
            [0, 0, 0],
        ]
        assert layer.blobs[1].grad.tolist() == [15 * passes, 27 * passes, 39 * passes]


def test_fillers() -> None:
    layer = one_layer(EMBED.replace("}", "weight_filler { value: 2 } bias_filler { value: 3 } }"), (1,))
    assert layer(torch.tensor([1.0])).tolist() == [[5, 5, 5]]


def test_shapes_and_flops() -> None:
    assert shapes_of(EMBED, (5, 2)) == ((5, 2, 3),)
    assert shapes_of(EMBED, ()) == ((3,),)
    assert [tuple(blob.shape) for blob in one_layer(EMBED, (2,)).blobs] == [(4, 3), (3,)]
    assert [tuple(blob.shape) for blob in one_layer(PLAIN, (2,)).blobs] == [(4, 3)]
    assert (flops_of(EMBED, (5, 2)), flops_of(PLAIN, (5, 2))) == (30, 0)


@pytest.mark.parametrize("wrong", [4, -1, -3, float("nan"), 1e30])
def test_an_index_without_a_row(wrong: float) -> None:
    message = (
        f'layer "L": index {wrong:g} at position 2 of "x0" is outside [0, 4), the rows of its table '
        "(embed_param { input_dim })"
    )
    with pytest.raises(DataError) as caught:
        one_layer(EMBED, (2, 2))(torch.tensor([[3.0, 0], [wrong, 1]]))
    assert str(caught.value) == message


def test_no_samples_and_memory_formats() -> None:
    layer = randomise(one_layer(EMBED, (0, 2)))
    assert layer(torch.zeros(0, 2)).shape == (0, 2, 3)
    indices = (spaced((2, 2, 3, 2)) + 2).float()
    last = indices.contiguous(memory_format=torch.channels_last)
    assert torch.equal(layer(last), layer(indices))


def test_exports_for_any_batch_size() -> None:
    layer = randomise(one_layer(EMBED, (2, 3)))
    program = torch.export.export(layer, (torch.ones(2, 3),), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),))
    larger = torch.tensor([[0.0, 1, 2]] * 5)
    torch.testing.assert_close(program.module()(larger), layer(larger))


def test_ranks_make_what_one_process_makes() -> None:
    counts, indices = (2, 0, 5), torch.tensor([3.0, 1, 1, 0, 3, 2, 3])
    layer = randomise(one_layer(EMBED, (7,)))
    assert layer.mixes_samples(layer.spec, [(7,)]) == ""
    (top,), _, gradients, _ = run_layer(layer, [indices], 0)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        rows = rows_of(context.split(7))
        return run_layer(randomise(one_layer(EMBED, (7,), context=context)), [indices[rows]], 0, rows)

    ranks = on_ranks(counts, run)
    torch.testing.assert_close(whole_of([rank[0][0] for rank in ranks], counts), top)
    for index, gradient in enumerate(gradients):
        torch.testing.assert_close(sum(rank[2][index] for rank in ranks), gradient)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("§embed_param { input_dim: 4 }", "needs num_output, at least 1"),
        ("embed_param { num_output: 3 §input_dim: 0 }", "needs input_dim, at least 1"),
    ],
)
def test_refusals(settings: str, message: str) -> None:
    check_refusal(f'top: "y" type: "Embed" {settings}', message, x=(2,))
