"""The losses and labels of R-FCN's online hard example mining, by hand."""

from __future__ import annotations

import torch

from tests.support.one_layer import error_of, one_layer, tops_of


def test_the_hardest_regions_of_each_image_keep_their_labels() -> None:
    layer = one_layer(
        'type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 2 }',
        (5, 5),
        (5, 1, 1, 1),
        (5,),
        (5, 3),
        tops=2,
    )
    regions = torch.zeros(5, 5)
    regions[:, 0] = torch.tensor([0.0, 1, 0, 0, 1])
    losses = torch.tensor([3.0, 9, 1, 2, 4]).view(5, 1, 1, 1)
    labels, weights = tops_of(layer, regions, losses, torch.arange(1.0, 6), torch.arange(15.0).view(5, 3))
    assert labels.shape == (5, 1, 1, 1)
    assert labels.flatten().tolist() == [1, 2, -1, 4, 5]
    assert weights.flatten(1).tolist() == [[0, 1, 2], [3, 4, 5], [0, 0, 0], [9, 10, 11], [12, 13, 14]]


def test_smooth_l1_and_its_loss_of_each_region() -> None:
    body = 'type: "SmoothL1LossOHEM" loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 4 }'
    layer = one_layer(body, (2, 2), (2, 2), (2, 2), tops=2)
    x, target = torch.tensor([[0.5, 3], [0, -4]]), torch.zeros(2, 2)
    loss, each = tops_of(layer, x, target, torch.tensor([[1.0, 1], [1, 0.5]]))
    # 0.5² / 2 and 3 - 1/2; 0 and |0.5 · -4| - 1/2
    assert each.shape == (2, 1, 1, 1)
    assert each.flatten().tolist() == [2.625, 1.5]
    assert loss.item() == (2.625 + 1.5) / 4


def test_softmax_loss_of_each_label() -> None:
    scores, labels = torch.tensor([[0.0, 0], [1, 3], [5, 5]]), torch.tensor([0.0, 0, -1])
    layer = one_layer('type: "SoftmaxWithLossOHEM" loss_param { ignore_label: -1 }', (3, 2), (3,), tops=3)
    loss, probabilities, each = tops_of(layer, scores, labels)
    first, second = torch.tensor(2.0).log(), (1 + torch.tensor(2.0).exp()).log()
    torch.testing.assert_close(each.flatten(), torch.stack([first, second, torch.tensor(0.0)]))
    torch.testing.assert_close(loss, (first + second) / 2)
    torch.testing.assert_close(probabilities, scores.softmax(1))
    assert each.shape == (3, 1, 1, 1)


def test_classes_are_weighed_as_in_segnet() -> None:
    fields = "weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 3"
    layer = one_layer(f'type: "SoftmaxWithLoss" loss_param {{ {fields} }}', (3, 2), (3,))
    scores, labels = torch.tensor([[0.0, 0], [1, 3], [5, 5]]), torch.tensor([0.0, 0, 1])
    first, second = torch.tensor(2.0).log(), (1 + torch.tensor(2.0).exp()).log()
    torch.testing.assert_close(layer(scores, labels), (0.5 * first + 0.5 * second + 3 * first) / 3)
    assert error_of(
        'type: "SoftmaxWithLoss" loss_param { weight_by_label_freqs: true class_weighting: 1 }', (3, 2), (3,)
    ) == ("weight_by_label_freqs needs a class_weighting for each of 2 classes, given 1")
    assert error_of('type: "SigmoidCrossEntropyLoss" loss_param { weight_by_label_freqs: true }', (3, 2), (3, 2)) == (
        "weight_by_label_freqs is for SoftmaxWithLoss, SigmoidCrossEntropyLoss does not weigh classes"
    )


def test_the_weights_of_fast_rcnn_are_inside() -> None:
    layer = one_layer('type: "SmoothL1Loss"', (2, 2), (2, 2), (2, 2))
    apart, weights = torch.tensor([[0.5, 3], [-4, 7]]), torch.tensor([[1.0, 2], [0.5, 0]])
    torch.testing.assert_close(layer(apart, torch.zeros(2, 2), weights), torch.tensor((0.125 + 5.5 + 1.5) / 2))
