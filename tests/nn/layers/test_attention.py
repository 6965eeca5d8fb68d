from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import Layer, attention
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, shapes_of

Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

CASES: dict[str, Shapes] = {
    "1-D": ((2, 3, 5), (2, 3, 5), (2, 4, 5)),
    "2-D, other places": ((2, 1, 3, 2), (2, 1, 2, 4), (2, 3, 2, 4)),
    "3-D, other axes": ((3, 2, 7), (3, 2, 2, 1, 3), (3, 2, 2, 1, 3)),
    "3-D": ((2, 2, 2, 3, 2), (2, 2, 2, 3, 2), (2, 5, 2, 3, 2)),
    "one key": ((1, 2, 3, 3), (1, 2, 1, 1), (1, 2, 1, 1)),
}
every_case = pytest.mark.parametrize("shapes", CASES.values(), ids=CASES)


def body(settings: str = "") -> str:
    return f'type: "Attention" attention_param {{ {settings} }}'


def attention_layer(shapes: Shapes, settings: str = "") -> Layer:
    return one_layer(body(settings), *shapes)


def bottoms_of(shapes: Shapes) -> list[Tensor]:
    return [spaced(shape, seed).float() for seed, shape in enumerate(shapes)]


def by_loops(query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float) -> np.ndarray:
    """The definition, one pair of places at a time, in float64."""
    q, k, v = (bottom.reshape(*bottom.shape[:2], -1).astype(np.float64) for bottom in (query, key, value))
    top = np.zeros((*v.shape[:2], q.shape[2]))
    for n, i in product(range(q.shape[0]), range(q.shape[2])):
        total, sums = 0.0, np.zeros(v.shape[1])
        for j in range(k.shape[2]):
            weight = math.exp(scale * sum(q[n, c, i] * k[n, c, j] for c in range(q.shape[1])))
            total += weight
            sums += weight * v[n, :, j]
        top[n, :, i] = sums / total
    return top.reshape(*value.shape[:2], *query.shape[2:])


def grads_of(layer: Layer, bottoms: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The top, and the gradients of a weighted sum of it."""
    leaves = [bottom.detach().requires_grad_() for bottom in bottoms]
    top = layer(*leaves)
    weights = torch.linspace(0.5, 1, top.numel()).reshape(top.shape)
    return top.detach(), torch.autograd.grad((top * weights).sum(), leaves)


@every_case
@pytest.mark.parametrize("scale", [1, 0, -0.75], ids=["default", "by channels", "negative"])
def test_is_the_definition(shapes: Shapes, scale: float) -> None:
    bottoms = bottoms_of(shapes)
    factor = scale or 1 / math.sqrt(shapes[0][1])
    query, key, value = (bottom.numpy() for bottom in bottoms)
    wanted = by_loops(query, key, value, factor)
    top = attention_layer(shapes, "" if scale == 1 else f"scale: {scale}")(*bottoms)
    torch.testing.assert_close(top, torch.from_numpy(wanted).float(), rtol=1e-5, atol=1e-6)


def test_two_places_by_hand() -> None:
    # One channel; queries 0 and ln 3 against keys 0 and 1: weights 1 : 1 and 1 : 3. Values 4 and 8.
    shapes: Shapes = ((1, 1, 2), (1, 1, 2), (1, 1, 2))
    query, key, value = (
        torch.tensor(values).reshape(1, 1, 2).requires_grad_() for values in ([0, math.log(3)], [0.0, 1], [4.0, 8])
    )
    top = attention_layer(shapes)(query, key, value)
    torch.testing.assert_close(top, torch.tensor([[[6.0, 7]]]))
    # Of the second top: values get its weights. Each key gets weight · (value - top) · query, that is 1/4 · (4 - 7)
    # and 3/4 · (8 - 7) times ln 3; the query gets the same times the keys.
    d_query, d_key, d_value = torch.autograd.grad(top[0, 0, 1], (query, key, value))
    torch.testing.assert_close(d_value, torch.tensor([[[0.25, 0.75]]]))
    torch.testing.assert_close(d_key, torch.tensor([[[-0.75, 0.75]]]) * math.log(3))
    torch.testing.assert_close(d_query, torch.tensor([[[0, 0.75]]]))


@pytest.mark.parametrize("constant", [(0, 1), (2,)], ids=["only values learn", "values given"])
def test_gradients_of_some_bottoms(constant: tuple[int, ...]) -> None:
    check_gradients(body(), *CASES["2-D, other places"], constant=constant)


@every_case
@pytest.mark.parametrize("block", [1, 7, 31, 60])
def test_blocks_do_not_matter(shapes: Shapes, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, bottoms = attention_layer(shapes), bottoms_of(shapes)
    whole = grads_of(layer, bottoms)
    monkeypatch.setattr(attention, "BLOCK", block)
    torch.testing.assert_close(grads_of(layer, bottoms), whole)


@pytest.mark.parametrize(("block", "most"), [(1, 10), (10, 10), (55, 50), (250, 200)])
def test_never_more_pairs_than_a_block(block: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 samples of 10 queries and 10 keys; but at least those of one query."""
    made: list[Tensor] = []
    weights = attention._weights

    def watched(*arguments: object) -> Tensor:
        made.append(weights(*arguments))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(attention, "BLOCK", block)
    monkeypatch.setattr(attention, "_weights", watched)
    shapes: Shapes = ((5, 2, 10), (5, 2, 10), (5, 2, 10))
    grads_of(attention_layer(shapes), bottoms_of(shapes))
    assert max(matrix.numel() for matrix in made) == most
    assert sum(matrix.numel() for matrix in made) == 2 * 500  # once in each direction


@every_case
def test_agrees_with_torch(shapes: Shapes) -> None:
    bottoms = bottoms_of(shapes)
    query, key, value = (bottom.flatten(2).transpose(1, 2) for bottom in bottoms)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=1).transpose(1, 2)
    torch.testing.assert_close(attention_layer(shapes)(*bottoms).flatten(2), wanted, rtol=1e-5, atol=1e-6)


def test_large_products_do_not_overflow() -> None:
    shapes: Shapes = ((1, 1, 2), (1, 1, 2), (1, 1, 2))
    top = attention_layer(shapes)(
        torch.full((1, 1, 2), 1000.0), torch.tensor([[[0.0, 1000]]]), torch.tensor([[[3.0, 5]]])
    )
    assert torch.equal(top, torch.full((1, 1, 2), 5.0))


@pytest.mark.parametrize("axes", [2, 3])
def test_channels_last_gives_the_same_and_is_kept(axes: int) -> None:
    shapes: Shapes = ((2, 3, *(4, 5, 2)[:axes]), (2, 3, *(3, 2, 4)[:axes]), (2, 6, *(3, 2, 4)[:axes]))
    layout = torch.channels_last if axes == 2 else torch.channels_last_3d
    layer, bottoms = attention_layer(shapes), bottoms_of(shapes)
    plain = grads_of(layer, bottoms)
    last = grads_of(layer, [bottom.contiguous(memory_format=layout) for bottom in bottoms])
    torch.testing.assert_close(last, plain)
    assert last[0].is_contiguous(memory_format=layout)
    assert all(grad.is_contiguous(memory_format=layout) for grad in last[1])


def test_no_samples() -> None:
    shapes: Shapes = ((0, 3, 4, 5), (0, 3, 2, 2), (0, 6, 2, 2))
    top, grads = grads_of(attention_layer(shapes), bottoms_of(shapes))
    assert top.shape == (0, 6, 4, 5)
    assert [tuple(grad.shape) for grad in grads] == list(shapes)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a Function
def test_compiles_and_exports() -> None:
    shapes = CASES["2-D, other places"]
    layer, bottoms = attention_layer(shapes), bottoms_of(shapes)
    wanted = layer(*bottoms)
    batch = ({0: torch.export.Dim.DYNAMIC},) * 3
    program = torch.export.export(layer, tuple(bottoms), dynamic_shapes=(batch,))
    torch.testing.assert_close(program.module()(*bottoms), wanted)
    more = [torch.cat([bottom, -bottom]) for bottom in bottoms]
    torch.testing.assert_close(program.module()(*more), layer(*more))
    layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(layer(*bottoms), wanted)


@pytest.mark.gpu
@every_case
def test_a_gpu_gives_the_same(shapes: Shapes) -> None:
    layer, bottoms = attention_layer(shapes), bottoms_of(shapes)
    wanted = grads_of(layer, bottoms)[0]
    torch.testing.assert_close(layer.cuda()(*(bottom.cuda() for bottom in bottoms)).cpu(), wanted)


def test_shapes() -> None:
    shapes: Shapes = ((2, 3, 4, 5), (2, 3, 2, 2, 2), (2, 7, 2, 2, 2))
    assert shapes_of(body(), *shapes) == ((2, 7, 4, 5),)


def test_samples_may_be_on_different_ranks() -> None:
    layer = attention_layer(((2, 3, 4), (2, 3, 5), (2, 1, 5)))
    assert type(layer).mixes_samples(layer.spec, [(2, 3, 4), (2, 3, 5), (2, 1, 5)]) == ""
    assert not list(layer.parameters())
    assert pb.AttentionParameter().scale == 1


@pytest.mark.parametrize(
    ("text", "message", "shapes"),
    [
        (
            'bottom: "q" bottom: "k" §bottom: "v" type: "Attention" top: "y"',
            'needs (N, channels, places …): "v" (2, 3) has no axis of places',
            ((2, 3, 4), (2, 3, 4), (2, 3)),
        ),
        (
            'bottom: "q" §bottom: "k" bottom: "v" type: "Attention" top: "y"',
            'all bottoms must have the same samples (axis 0): "q" (2, 3, 4) and "k" (1, 3, 4) and "v" (2, 3, 4)',
            ((2, 3, 4), (1, 3, 4), (2, 3, 4)),
        ),
        (
            'bottom: "q" §bottom: "k" bottom: "v" type: "Attention" top: "y"',
            'keys must have the queries\' channels: "q" (2, 3, 4) and "k" (2, 5, 4)',
            ((2, 3, 4), (2, 5, 4), (2, 3, 4)),
        ),
        (
            'bottom: "q" bottom: "k" §bottom: "v" type: "Attention" top: "y"',
            'values must be at the places of the keys: "k" (2, 3, 4, 1) and "v" (2, 3, 1, 4)',
            ((2, 3, 4), (2, 3, 4, 1), (2, 3, 1, 4)),
        ),
        (
            'bottom: "q" §bottom: "k" bottom: "v" type: "Attention" top: "y"',
            '"k" (2, 3, 4, 0) has no places to choose from',
            ((2, 3, 4), (2, 3, 4, 0), (2, 1, 4, 0)),
        ),
        (
            'bottom: "q" bottom: "k" bottom: "v" type: "Attention" top: "y" attention_param { §scale: inf }',
            "scale must be a number, not inf",
            ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
        ),
        (
            '§bottom: "q" bottom: "k" type: "Attention" top: "y"',
            "Attention takes 3 bottoms, given 2 (q, k)",
            ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
        ),
    ],
)
def test_refusals(text: str, message: str, shapes: Shapes) -> None:
    check_refusal(text, message, **dict(zip("qkv", shapes, strict=True)))
