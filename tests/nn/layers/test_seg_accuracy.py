"""SegAccuracy by hand: classes that are missing, further tops, batches that add up."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.base.errors import DataError
from tests.support.one_layer import error_of, one_layer, tops_of


def scores(answers: list[int], classes: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(answers), classes).float().t().view(1, classes, 1, -1)


def labels(*classes: int) -> Tensor:
    return torch.tensor(classes).float().view(1, 1, 1, -1)


def test_by_hand() -> None:
    body = 'type: "SegAccuracy" seg_accuracy_param { ignore_label: 255 ignore_label: 9 output_label: 1 }'
    layer = one_layer(body, (1, 4, 1, 7), (1, 1, 1, 7), tops=2)
    top, one = tops_of(layer, scores([0, 0, 1, 1, 1, 0, 2], 4), labels(0, 0, 0, 1, 1, 255, 9))
    assert top.shape == one.shape == (1, 1, 1, 3)
    # Of 5 pixels 4 are right; recalls 2/3 and 1 of the classes that there are; IoUs 2/3 and 2/3, and 1 of the two
    # others
    torch.testing.assert_close(top.flatten(), torch.tensor([4 / 5, (2 / 3 + 1) / 2, (2 / 3 + 2 / 3 + 1 + 1) / 4]))
    torch.testing.assert_close(one.flatten(), torch.tensor([2 / 3, 1, 2 / 3]))


def test_one_channel_is_class_1_above_a_half() -> None:
    layer = one_layer('type: "SegAccuracy"', (1, 1, 1, 4), (1, 1, 1, 4))
    top = layer(torch.tensor([0.4, 0.5, 0.6, 0.9]).view(1, 1, 1, 4), labels(0, 1, 1, 0))
    torch.testing.assert_close(top.flatten(), torch.tensor([0.5, 0.5, 1 / 3]))


def test_batches_add_up_without_reset() -> None:
    layer = one_layer('type: "SegAccuracy" seg_accuracy_param { reset: false }', (1, 2, 1, 2), (1, 1, 1, 2))
    assert layer(scores([0, 1], 2), labels(0, 1)).flatten()[0] == 1
    assert layer(scores([0, 1], 2), labels(1, 0)).flatten()[0] == 0.5


def test_mistakes() -> None:
    layer = one_layer('type: "SegAccuracy"', (1, 2, 1, 2), (1, 1, 1, 2))
    with pytest.raises(DataError, match=r'label 2 of "x1" is outside \[0, 2\)'):
        layer(scores([0, 1], 2), labels(0, 2))
    assert error_of('type: "SegAccuracy"', (1, 2, 3, 3), (1, 1, 3, 3), tops=2) == (
        "has one top, and one for each output_label: 1, given 2"
    )


@pytest.mark.parametrize(
    ("metric", "value"), [("PixelAccuracy", 4 / 5), ("ClassAccuracy", 5 / 6), ("PixelIOU", (2 / 3 + 2 / 3 + 1 + 1) / 4)]
)
def test_segnets_metric(metric: str, value: float) -> None:
    body = f'type: "SegAccuracy" seg_accuracy_param {{ metric: {metric} ignore_label: 255 ignore_label: 9 }}'
    layer = one_layer(body, (1, 4, 1, 7), (1, 1, 1, 7))
    top = layer(scores([0, 0, 1, 1, 1, 0, 2], 4), labels(0, 0, 0, 1, 1, 255, 9))
    torch.testing.assert_close(top, torch.tensor([value]))
