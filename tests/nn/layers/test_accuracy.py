from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from tests.support.one_layer import one_layer, one_layer_graph, shapes_of, tops_of


def accuracy_of(more: str, scores: Tensor, labels: Sequence[float] | Tensor, tops: int = 1) -> list[object]:
    labels = torch.as_tensor(labels)
    body = f'type: "Accuracy" accuracy_param {{ {more} }}'
    layer = one_layer(body, tuple(scores.shape), tuple(labels.shape), tops=tops)
    return [top.tolist() for top in tops_of(layer, scores, labels)]


SCORES = torch.tensor([[3.0, 2, 1], [1, 2, 3], [2, 3, 1], [1, 2, 3]])


def test_each_class() -> None:
    # Best: 0, 2, 1, 2. Right: of class 0 one in two, of class 2 one in two; class 1 does not occur.
    assert accuracy_of("", SCORES, [0.0, 2, 0, 2], tops=2) == [0.75, [0.5, 0.0, 1.0]]
    assert accuracy_of("", SCORES, [0.0, 0, 1, 1], tops=2) == [0.5, [0.5, 0.5, 0.0]]


@pytest.mark.parametrize(("top_k", "expected"), [(1, 0.25), (2, 0.75), (3, 1.0)])
def test_top_k(top_k: int, expected: float) -> None:
    # The label's rank: 1, 2, 3, 2.
    assert accuracy_of(f"top_k: {top_k}", SCORES, [0.0, 1, 2, 1]) == [expected]


def test_an_equal_score_counts_as_better() -> None:
    scores = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert accuracy_of("", scores, [0.0, 0, 2]) == [pytest.approx(1 / 3)]
    assert accuracy_of("top_k: 2", scores, [0.0, 0, 2]) == [pytest.approx(2 / 3)]


def test_nan_is_never_right() -> None:
    nan = math.nan
    scores = torch.tensor([[nan, nan], [nan, 1], [1, nan], [1, 0]])
    assert accuracy_of("", scores, [0.0, 0, 0, 0]) == [0.25]
    assert accuracy_of("top_k: 2", scores, [0.0, 0, 0, 0]) == [0.5]


def test_ignored_labels_need_be_no_class() -> None:
    assert accuracy_of("ignore_label: 255", SCORES, [0.0, 255, 0, 255], tops=2) == [0.5, [0.5, 0.0, 0.0]]
    assert accuracy_of("ignore_label: -1", SCORES, [-1.0, -1, -1, -1], tops=2) == [0.0, [0.0, 0.0, 0.0]]


def test_no_samples() -> None:
    assert accuracy_of("", torch.zeros(0, 3), torch.zeros(0), tops=2) == [0.0, [0.0, 0.0, 0.0]]


def test_another_axis() -> None:
    assert accuracy_of("axis: 0", SCORES.T.contiguous().reshape(3, 4), [0.0, 2, 0, 2]) == [0.75]
    assert accuracy_of("axis: -1", SCORES.reshape(2, 2, 3), torch.tensor([[0.0, 2], [0, 2]])) == [0.75]


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        (
            [0.0, 1, 3, 0],
            "",
            'label 3 at position 2 of "x1" is outside [0, 3), the classes of "x0"; correct the list or data set that '
            '"x1" comes from, or give "x0" more classes',
        ),
        (
            [255.0, -2, 3, 0],
            "ignore_label: 255",
            'label -2 at position 1 of "x1" is outside [0, 3), the classes of "x0"; correct the list or data set that '
            '"x1" comes from',
        ),
    ],
)
def test_labels_that_are_no_class(labels: list[float], more: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        accuracy_of(more, SCORES, labels)
    assert str(caught.value) == f'layer "L": {message}'


def test_it_never_runs_backward() -> None:
    graph = one_layer_graph('type: "Accuracy"', (4, 3), (4,))
    assert graph.force_backward
    assert graph.nodes[-1].bottom_needs_diff == (False, False)
    top = one_layer('type: "Accuracy"', (4, 3), (4,))(SCORES.clone().requires_grad_(), torch.zeros(4))
    assert not top.requires_grad


def test_shapes() -> None:
    assert shapes_of('type: "Accuracy"', (4, 3, 5), (4, 5), tops=2) == ((), (3,))
