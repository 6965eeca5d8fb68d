"""Where Caffe's derivative is not calculus on purpose: its rule, in loops over numbers or in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor

from tests.support.gradient_checker import spaced
from tests.support.gradients.cases import Case, body
from tests.support.gradients.checks import run
from tests.support.gradients.strategies import flags, labels, shapes
from tests.support.one_layer import Shape, one_layer

drawn = settings(deadline=None, derandomize=True, max_examples=25)


@pytest.mark.parametrize(
    ("text", "x", "derivative"),
    [
        (body("AbsVal"), 0.0, 0.0),
        (body("ReLU"), 0.0, 0.0),
        (body("ReLU", "relu_param", negative_slope=0.25), 0.0, 0.25),
        (body("ReLU6"), 0.0, 0.0),
        (body("ReLU6"), 6.0, 0.0),
        (body("ReLU6", "relu_param", negative_slope=0.25), 0.0, 0.25),
        (body("ReLU6", "relu_param", negative_slope=0.25), 6.0, 0.0),
        (body("ELU", "elu_param", alpha=0.5), 0.0, 0.5),
        (body("PReLU"), 0.0, 0.25),
        (body("Clip", "clip_param", min=-1, max=2), -1.0, 1.0),
        (body("Clip", "clip_param", min=-1, max=2), 2.0, 1.0),
        (body("BNLL"), 51.0, 1.0),
        (body("Reduction", "reduction_param", operation="ASUM", axis=1), 0.0, 0.0),
    ],
)
def test_one_of_two_derivatives_at_a_kink(text: str, x: float, derivative: float) -> None:
    layer = one_layer(text, (1, 3)).double()
    bottom = torch.tensor([[1.0, x, x]], dtype=torch.float64, requires_grad=True)
    (diff,) = torch.autograd.grad(layer(bottom).sum(), bottom)
    assert diff[0, 1:].tolist() == [derivative] * 2


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_hinge_loss_where_the_margin_is_just_kept(norm: str) -> None:
    case = Case(
        body("HingeLoss", "hinge_loss_param", norm=norm),
        (torch.tensor([[1.0, -1.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)),
        constant=(1,),
    )
    assert run(case.layer(), case)[1][0].tolist() == [[0, 0]]


@drawn
@given(shapes(largest=30), some.sampled_from([0.5, 1.0, 9.0]), some.data())
def test_contrastive_loss(shape: Shape, margin: float, data: some.DataObject) -> None:
    """The distance is ``d + 1e-4`` in the divisor of pairs that are not alike."""
    alike = data.draw(labels(shape[:1], 2))
    case = Case(
        body("ContrastiveLoss", "contrastive_loss_param", margin=margin),
        (spaced(shape, 0), spaced(shape, 1), alike),
        constant=(2,),
    )
    first, second = run(case.layer(), case)[1]
    a, b = (bottom.flatten(1).numpy() for bottom in case.bottoms[:2])
    wanted = np.zeros_like(a)
    for sample, is_alike in enumerate(alike.tolist()):
        apart = a[sample] - b[sample]
        distance = math.sqrt(sum(apart * apart))
        if is_alike:
            wanted[sample] = apart
        elif distance < margin:
            wanted[sample] = -(margin - distance) / (distance + 1e-4) * apart
    expected = torch.from_numpy(wanted).reshape(shape) * 3 / shape[0]  # 3: the loss's own diff
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, -expected)


@drawn
@given(shapes(), flags, some.sampled_from([0.1, 2.0]))
def test_mvn(shape: Shape, across: bool, eps: float) -> None:
    """``(dy - mean(dy) - y · mean(y · dy)) / (deviation + eps)``: true of the deviation alone."""
    settings_of = body("MVN", "mvn_param", across_channels=across, eps=eps)
    x, dy = (spaced(shape, seed) for seed in range(2))
    top = one_layer(settings_of, shape)(x.requires_grad_())
    (diff,) = torch.autograd.grad(top, x, dy.reshape(top.shape))
    rows = shape[0] if across else shape[0] * shape[1]
    xs, dys, diffs = (tensor.detach().reshape(rows, -1).numpy() for tensor in (x, dy, diff))
    for values, seeds, found in zip(xs, dys, diffs, strict=True):
        y = (values - values.mean()) / (values.std() + eps)
        wanted = (seeds - seeds.mean() - y * (y * seeds).mean()) / (values.std() + eps)
        np.testing.assert_allclose(found, wanted, atol=1e-12)


FAR = torch.tensor([[0.0, 100.0, 99.0], [-60.0, 60.0, 0.0]], dtype=torch.float64)  # p of classes 0: e^-100, e^-120


def probabilities() -> np.ndarray:
    powers = np.exp(FAR.numpy() - FAR.numpy().max(1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(1, keepdims=True)
    return shares


def test_softmax_loss_where_the_log_is_clipped() -> None:
    case = Case(body("SoftmaxWithLoss"), (FAR, torch.zeros(2, dtype=torch.float64)), constant=(1,))
    (loss,), (diff,), _ = run(case.layer(), case)
    assert loss.item() == pytest.approx(-math.log(2.0**-126), rel=1e-6)
    np.testing.assert_allclose(diff.numpy(), (probabilities() - np.eye(3)[[0, 0]]) / 2 * 3, atol=1e-12)


def test_infogain_loss_where_the_log_is_clipped() -> None:
    matrix = spaced((3, 3))
    case = Case(body("InfogainLoss"), (FAR, torch.zeros(2, dtype=torch.float64), matrix), constant=(1, 2))
    (loss,), (diff,), _ = run(case.layer(), case)
    p, row = probabilities(), matrix[0].numpy()
    assert loss.item() == pytest.approx(-(row * np.log(np.maximum(p, 1e-20))).sum() / 2)
    np.testing.assert_allclose(diff.numpy(), (p * row.sum() - row) / 2 * 3, atol=1e-12)


def test_multinomial_logistic_loss_below_its_least_probability() -> None:
    p = torch.tensor([[0.5, 0.5], [1e-30, 1.0], [0.0, 1.0]], dtype=torch.float64)
    case = Case(body("MultinomialLogisticLoss"), (p, torch.zeros(3, dtype=torch.float64)), constant=(1,))
    (loss,), (diff,), _ = run(case.layer(), case)
    assert loss.item() == pytest.approx(-(math.log(0.5) + 2 * math.log(1e-20)) / 3)
    torch.testing.assert_close(diff[:, 0], torch.tensor([-2.0, -1e20, -1e20], dtype=torch.float64))  # · 3 / 3
    assert not diff[:, 1].any()


@drawn
@given(some.tuples(*[some.integers(1, 4)] * 2), some.integers(0, 9))
def test_lstm_unit_between_its_markers(shape: tuple[int, int], seed: int) -> None:
    """With ``f = marker · sigmoid(x)`` the derivative of the forget gate is ``f · (1 - f)``."""
    streams, size = shape
    case = Case(
        body("LSTMUnit"),
        (spaced((1, streams, size), seed), spaced((1, streams, 4 * size), 1), torch.full((1, streams), 0.6).double()),
        constant=(2,),
        tops=2,
    )
    (cells, _), (d_before, d_gates), _ = run(case.layer(), case)
    before, gates = (bottom.numpy() for bottom in case.bottoms[:2])
    i, f, o = (1 / (1 + np.exp(-part)) for part in np.split(gates, 4, -1)[:3])
    g = np.tanh(gates[..., 3 * size :])
    f = f * case.bottoms[2].numpy()[..., None]
    seeds = np.sin(np.arange(streams * size)).reshape(1, streams, size)  # of both tops
    tanh = np.tanh(f * before + i * g)
    np.testing.assert_allclose(cells.numpy(), f * before + i * g, atol=1e-12)
    dc = seeds + seeds * o * (1 - tanh**2)
    np.testing.assert_allclose(d_before.numpy(), dc * f, atol=1e-12)
    wanted = [dc * g * i * (1 - i), dc * before * f * (1 - f), seeds * tanh * o * (1 - o), dc * i * (1 - g**2)]
    np.testing.assert_allclose(d_gates.numpy(), np.concatenate(wanted, -1), atol=1e-12)


@drawn
@given(some.tuples(some.integers(1, 4), some.integers(1, 3)), some.data())
def test_lstm_between_its_markers(shape: tuple[int, int], data: some.DataObject) -> None:
    """As many LSTMUnits as steps, joined by calculus, have the same diffs: with any markers."""
    steps, streams = shape
    size = data.draw(some.integers(1, 3))
    markers = spaced((steps, streams), data.draw(some.integers(0, 9))).abs() / 2
    case = Case(body("LSTM", "recurrent_param", num_output=size), (spaced((steps, streams, 2)) / 4, markers), (1,))
    layer = case.layer()
    (top,), (diff,), gradients = run(layer, case)
    x, (w_x, b, w_h) = case.bottoms[0].clone().requires_grad_(), list(layer.blobs)
    unit = one_layer(body("LSTMUnit"), (1, streams, size), (1, streams, 4 * size), (1, streams), tops=2).double()
    h, c = x.new_zeros(2, 1, streams, size)
    outputs: list[Tensor] = []
    for step in range(steps):
        sums = x[step : step + 1] @ w_x.t() + b + (h * markers[step].reshape(1, -1, 1)) @ w_h.t()
        c, h = unit(c, sums, markers[step : step + 1])
        outputs.append(h)
    torch.testing.assert_close(torch.cat(outputs), top)
    seeds = torch.sin(torch.arange(top.numel())).to(top.dtype).reshape(top.shape)
    wanted = torch.autograd.grad(torch.cat(outputs), [x, w_x, b, w_h], seeds)
    torch.testing.assert_close((diff, *gradients), wanted)


@pytest.mark.parametrize(("kind", "states"), [("LSTM", 2), ("RNN", 1)])
def test_exposed_states_have_no_gradient(kind: str, states: int) -> None:
    settings_of = body(kind, "recurrent_param", num_output=3, expose_hidden=True)
    shapes_of = [(4, 2, 5), (4, 2), *[(1, 2, 3)] * states]
    bottoms = [spaced(shape, seed).float().requires_grad_() for seed, shape in enumerate(shapes_of)]
    outputs, *last = one_layer(settings_of, *shapes_of, tops=1 + states)(*bottoms)
    assert not any(state.requires_grad for state in last)
    diffs = torch.autograd.grad(outputs.sum(), bottoms, allow_unused=True)
    assert [diff is not None for diff in diffs] == [True] + [False] * (1 + states)


@drawn
@given(some.tuples(some.integers(1, 2), some.integers(1, 5)), some.integers(0, 9))
def test_unpooling_to_one_place(shape: tuple[int, int], seed: int) -> None:
    """Of several elements for one place the last is there, and all have its diff (SegNet)."""
    bottom = (1, 1, *shape)
    generator = torch.Generator().manual_seed(seed)
    mask = torch.randint(-1, 3, bottom, generator=generator).double()
    case = Case(body("Upsample", "upsample_param", scale=2), (spaced(bottom), mask), constant=(1,))
    (top,), (diff,), _ = run(case.layer(), case)
    seeds = [math.sin(place) for place in range(top.numel())]
    wanted, diffs = [0.0] * top.numel(), []
    for value, place in zip(case.bottoms[0].flatten().tolist(), mask.flatten().int().tolist(), strict=True):
        if place >= 0:
            wanted[place] = value
        diffs.append(seeds[place] if place >= 0 else 0.0)
    assert top.flatten().tolist() == wanted
    assert diff.flatten().tolist() == pytest.approx(diffs)
