"""TripletLoss and CenterLoss by hand."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import DataError
from tests.support.one_layer import error_of, one_layer


def test_triplets() -> None:
    layer = one_layer('type: "TripletLoss" triplet_loss_param { margin: 3 }', (2, 2), (2, 2), (2, 2))
    anchors = torch.zeros(2, 2, requires_grad=True)
    positives, negatives = torch.tensor([[1.0, 2], [1, 0]]), torch.tensor([[2.0, 0], [3, 0]])
    loss = layer(anchors, positives, negatives)
    assert loss.item() == (3 + 5 - 4 + 0) / 4  # the second: 3 + 1 - 9 < 0
    loss.backward()
    assert anchors.grad is not None
    assert anchors.grad.tolist() == [[(2 - 1) / 2, -2 / 2], [0, 0]]


def test_a_triplet_loss_of_another_fork() -> None:
    assert error_of('type: "TripletLoss"', (3, 2), (3,)) == (
        "needs three bottoms: anchors, positives and negatives. With two, features and triplets or labels, "
        "Caffe's forks have different layers; slice the features into three blobs"
    )


def test_centres_follow_their_classes_whatever_the_loss_weighs() -> None:
    layer = one_layer('type: "CenterLoss" center_loss_param { num_output: 3 }', (4, 2), (4,))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[1.0, 1], [0, 0], [5, 5]]))
    x = torch.tensor([[2.0, 1], [0, 3], [1, -1], [3, 3]], requires_grad=True)
    loss = layer(x, torch.tensor([0.0, 1, 0, 0]))
    assert loss.item() == (1 + 9 + 4 + 8) / 8
    (loss * 7).backward()
    assert x.grad is not None and layer.blobs[0].grad is not None
    assert x.grad.tolist() == [[7 / 4, 0], [0, 21 / 4], [0, -14 / 4], [14 / 4, 14 / 4]]
    # Σ (c - x) / (1 + n): (1 - 2, 1 - 1) + (1 - 1, 1 + 1) + (1 - 3, 1 - 3) of three, and (0, -3) of one
    assert layer.blobs[0].grad.tolist() == [[-3 / 4, 0], [0, -3 / 2], [0, 0]]
    with pytest.raises(DataError, match=r"index 3 at position 1 .* outside \[0, 3\), its classes"):
        layer(x, torch.tensor([0.0, 3, 0, 0]))
