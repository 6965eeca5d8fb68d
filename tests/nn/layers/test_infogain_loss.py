from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.config.proto.binary_files import write_binary
from bpt.config.proto.blobs import array_to_blob
from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import spaced
from tests.support.one_layer import gradient_of, one_layer, tops_of

LOSS = 'type: "InfogainLoss"'
MATRIX = torch.tensor([[1.0, 0.5, 0], [0, 2, 0.25], [0.125, 0, 3]])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with MATRIX."""
    path = tmp_path / "H.binaryproto"
    write_binary(path, array_to_blob(MATRIX.numpy()))
    return path


def read(source: Path, more: str = "") -> str:
    return f'{LOSS} infogain_loss_param {{ source: "{source}" }} {more}'


def test_by_hand() -> None:
    # Scores log 1, log 2, log 5: probabilities 1/8, 1/4, 5/8. Label 1 has the row 0, 2, 1/4 of the matrix.
    scores = torch.tensor([[1.0, 2, 5]]).log().requires_grad_()
    loss = one_layer(LOSS, (1, 3), (1,), (1, 1, 3, 3))(scores, torch.tensor([1.0]), MATRIX.reshape(1, 1, 3, 3))
    loss.backward()
    assert loss.item() == pytest.approx(2 * math.log(4) + 0.25 * math.log(8 / 5))
    assert scores.grad is not None  # p · (the row's sum) - row
    assert scores.grad.tolist() == [pytest.approx([2.25 / 8, 2.25 / 4 - 2, 2.25 * 5 / 8 - 0.25])]


def test_a_file_is_as_good_as_a_bottom(source: Path) -> None:
    scores, labels = spaced((4, 3, 2)).float(), torch.tensor([[0.0, 1], [2, 2], [1, 0], [2, 1]])
    given = one_layer(LOSS, (4, 3, 2), (4, 2), (3, 3))(scores, labels, MATRIX)
    assert torch.equal(one_layer(read(source), (4, 3, 2), (4, 2))(scores, labels), given)


@pytest.mark.parametrize(
    "loss_param", ["", "ignore_label: 1", "normalization: FULL ignore_label: 1", "normalize: false"]
)
def test_with_the_identity_it_is_the_softmax_loss(loss_param: str) -> None:
    settings = f"loss_param {{ {loss_param} }}"
    scores, labels = spaced((4, 3, 2)).float(), torch.tensor([[0.0, 1], [2, 2], [1, 0], [2, 1]])
    found = []
    for body, more in ((LOSS, (torch.eye(3),)), ('type: "SoftmaxWithLoss"', ())):
        layer = one_layer(f"{body} {settings}", (4, 3, 2), (4, 2), *(tuple(m.shape) for m in more), tops=2)
        x = scores.clone().requires_grad_()
        loss, probabilities = tops_of(layer, x, labels, *more)
        loss.backward()
        found.append((loss, probabilities, x.grad))
    torch.testing.assert_close(found[0], found[1])


def test_another_axis(source: Path) -> None:
    scores, labels = spaced((4, 2, 3)).float(), torch.tensor([[0.0, 1], [2, 2], [1, 0], [2, 1]])
    body = f'{LOSS} infogain_loss_param {{ source: "{source}" axis: -1 }} softmax_param {{ axis: 2 }}'
    expected = one_layer(read(source), (4, 3, 2), (4, 2))(scores.transpose(1, 2), labels)
    # VALID divides by the labels either way.
    torch.testing.assert_close(one_layer(body, (4, 2, 3), (4, 2))(scores, labels), expected)


def test_small_probabilities_are_limited_forward_only() -> None:
    scores = torch.tensor([[200.0, 0, 0]], requires_grad=True)
    loss = one_layer(LOSS, (1, 3), (1,), (3, 3))(scores, torch.tensor([1.0]), torch.eye(3))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-20))
    assert gradient_of(scores).tolist() == [[1, -1, 0]]


def test_an_ignored_label_need_not_be_a_class(source: Path) -> None:
    layer = one_layer(read(source, "loss_param { ignore_label: 255 }"), (2, 3), (2,))
    scores = spaced((2, 3)).float().requires_grad_()
    loss = layer(scores, torch.tensor([255.0, 2]))
    loss.backward()
    alone = one_layer(read(source), (1, 3), (1,))(scores.detach()[1:], torch.tensor([2.0]))
    torch.testing.assert_close(loss, alone)
    assert scores.grad is not None and scores.grad[0].tolist() == [0, 0, 0]
    assert layer(scores, torch.tensor([255.0, 255])).item() == 0


def test_the_matrix_gets_no_diff() -> None:
    matrix = MATRIX.clone().requires_grad_()
    scores = spaced((2, 3)).float().requires_grad_()
    one_layer(LOSS, (2, 3), (2,), (3, 3))(scores, torch.tensor([1.0, 2]), matrix).backward()
    assert matrix.grad is None


def test_double_precision(source: Path) -> None:
    layer = one_layer(read(source), (2, 3), (2,)).double()
    loss: Tensor = layer(spaced((2, 3)), torch.tensor([1.0, 2], dtype=torch.float64))
    assert loss.dtype == torch.float64


def test_many_ranks(source: Path) -> None:
    file = one_layer(read(source), (3, 3), (3,))
    assert file.mixes_samples(file.spec, [(3, 3), (3,)]) == ""
    given = one_layer(LOSS, (3, 3), (3,), (3, 3))
    assert given.mixes_samples(given.spec, [(3, 3), (3,), (3, 3)]) == (
        'bottom "x2" (3, 3) is one matrix for all samples (infogain_loss_param { source } gives it to all ranks)'
    )
    along = "infogain_loss_param { axis: 0 } softmax_param { axis: 0 }"
    layer = one_layer(f"{LOSS} {along}", (3, 3), (3,), (3, 3))
    assert layer.mixes_samples(layer.spec, [(3, 3), (3,), (3, 3)]) == "its softmax runs along axis 0, the samples"
    ignoring = one_layer(read(source, "loss_param { ignore_label: 1 }"), (3, 3), (3,))
    assert ignoring.counts_by_data(ignoring.spec)
    assert not file.counts_by_data(file.spec)


def test_a_source_beside_a_bottom_is_noticed(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        one_layer(read(source), (2, 3), (2,), (3, 3))
    assert 'source is not read: the matrix is bottom "x2"' in caplog.text


def test_refusals(source: Path) -> None:
    xy = 'bottom: "x" bottom: "y"'
    bottoms = {"x": (2, 3), "y": (2,)}
    needs = "needs the infogain matrix: as a third bottom, or as source, a BlobProto file"
    check_refusal(f"{LOSS} §infogain_loss_param {{ axis: 1 }}", needs, **bottoms)
    missing = source.with_name("nowhere")
    check_refusal(f'{LOSS} infogain_loss_param {{ §source: "{missing}" }}', f"{missing}: no such file", **bottoms)
    check_refusal(
        f'{xy} §bottom: "h" {LOSS}',
        'the infogain matrix must have 3 x 3 numbers, one for each two classes: "x" (2, 3) and "y" (2,) and "h" (3,)',
        **bottoms,
        h=(3,),
    )
    check_refusal(
        f'{LOSS} infogain_loss_param {{ §source: "{source}" }}',
        f'"{source}" holds 9 numbers, not the 4 x 4 of an infogain matrix for the classes of "x" (2, 4)',
        x=(2, 4),
        y=(2,),
    )
    check_refusal(
        f'{xy} bottom: "h" {LOSS} infogain_loss_param {{ §axis: 2 }}',
        "infogain_loss_param { axis } (2) and softmax_param { axis } (1) must name the same axis, that of the classes; "
        "set both",
        x=(2, 3, 3),
        y=(2, 3),
        h=(3, 3),
    )


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_an_ignored_row_may_hold_anything(source: Path, odd: float) -> None:
    """Caffe skips it; a product with 0 made NaN of it, in the loss and in the gradient."""
    layer = one_layer(read(source, "loss_param { ignore_label: 255 }"), (2, 3), (2,), tops=2)
    scores = spaced((2, 3)).float()
    scores[0, 1] = odd
    x = scores.clone().requires_grad_()
    loss, probabilities = layer(x, torch.tensor([255.0, 2]))
    loss.backward()
    y = scores[1:].clone().requires_grad_()
    alone = one_layer(read(source), (1, 3), (1,))(y, torch.tensor([2.0]))
    alone.backward()
    torch.testing.assert_close(loss, alone)
    torch.testing.assert_close(gradient_of(x), torch.cat([torch.zeros(1, 3), gradient_of(y)]))
    torch.testing.assert_close(probabilities, torch.softmax(scores, 1), equal_nan=True)


def test_an_ignored_row_skips_the_matrix() -> None:
    matrix = MATRIX.clone()
    matrix[0, 0] = math.inf  # the row that an ignored label reads in passing
    layer = one_layer(f"{LOSS} loss_param {{ ignore_label: 255 }}", (2, 3), (2,), (3, 3))
    scores = spaced((2, 3)).float()
    alone = one_layer(LOSS, (1, 3), (1,), (3, 3))(scores[1:], torch.tensor([2.0]), matrix)
    torch.testing.assert_close(layer(scores, torch.tensor([255.0, 2]), matrix), alone)
