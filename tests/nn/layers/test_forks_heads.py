"""MarginInnerProduct, SpatialTransformer, RegionLoss, ImResize and Nms by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import DataError
from bpt.nn.layers.inner_product import margin_of
from bpt.nn.pass_context import PassContext
from tests.support.layer_ranks import on_ranks, rows_of
from tests.support.one_layer import error_of, gradient_of, one_layer, randomise, shapes_of


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_a_margin_is_a_multiple_of_the_angle(parts: int) -> None:
    angles = torch.linspace(0.01, math.pi - 0.01, 50, dtype=torch.float64)
    k = (angles * parts / math.pi).floor()
    torch.testing.assert_close(margin_of(angles.cos(), parts), (-1) ** k * (parts * angles).cos() - 2 * k)


def test_margin_inner_product() -> None:
    text = "num_output: 2 type: DOUBLE base: 3 gamma: 1 power: 2 lambda_min: 0.5 iteration: 1"
    layer = one_layer(f'type: "MarginInnerProduct" margin_inner_product_param {{ {text} }}', (2, 2), (2,), tops=2)
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[0.0, 2], [3, 0]]))
    x = torch.tensor([[3.0, 4], [0, 2]], requires_grad=True)
    top, plain = layer(x, torch.tensor([0.0, 1]))
    assert layer.blobs[0].tolist() == [[0, 1], [1, 0]]
    assert plain.item() == 0.5  # max(3 / (1 + 2)², 0.5)
    # cos θ = 0.8: |x| cos 2θ = 5 · 0.28 = 1.4; 0: 2 cos 2θ = -2; each with a third of the plain product
    torch.testing.assert_close(top, torch.tensor([[(1.4 + 0.5 * 4) / 1.5, 3], [2, (-2 + 0) / 1.5]]))
    top[0, 1].backward()
    assert gradient_of(layer.blobs[0]).tolist() == [[0, 0], [3, 4]]
    with pytest.raises(DataError, match=r"index 2 at position 0 .* its classes"):
        layer(x, torch.tensor([2.0, 1]))


def test_a_transform_that_leads_nowhere_else_and_one_that_shifts() -> None:
    layer = one_layer('type: "SpatialTransformer" st_param { theta_1_1: 1 theta_2_2: 1 }', (1, 2, 3, 4), (1, 4))
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    torch.testing.assert_close(layer(x, torch.zeros(1, 4)), x)
    # One row down is 2 / 3 of half the height: the last row comes from outside. Half a column right is 1 / 4.
    shifted = layer(x, torch.tensor([[0, 2 / 3, 0, 1 / 4]]))
    torch.testing.assert_close(shifted[:, :, :2, :3], x[:, :, 1:, :3] + 0.5)
    assert shifted[:, :, 2].abs().max() == 0
    torch.testing.assert_close(shifted[:, :, :2, 3], x[:, :, 1:, 3] / 2)


def region(more: str = "", anchors: int = 2) -> str:
    return f'type: "RegionLoss" region_loss_param {{ num: {anchors} num_class: 2 biases: [1, 1, 2, 0.5] {more} }}'


def test_region_loss() -> None:
    """2 × 3 cells; an object in row 1, column 2 of the shape of the second anchor, and what all other cells cost."""
    layer = one_layer(
        region("coord_scale: 3 noobject_scale: 0.5 object_scale: 2 class_scale: 4"), (1, 14, 2, 3), (1, 10)
    )
    x = torch.zeros(1, 14, 2, 3, requires_grad=True)
    labels = torch.tensor([[1, 2.25 / 3, 1.5 / 2, 2 / 3, 0.25, 0, 0, 0, 0, 0]])
    overlap = 2 * 0.5 * (1 - 0.25 / 2) / (2 * 2 * 0.5 - 2 * 0.5 * (1 - 0.25 / 2))
    places = 0.25**2 * 3 / 2
    # All boxes are where their anchors are, so that warming up costs nothing. Confidences of 0.5 are drawn to 0, but
    # for 3 boxes that overlap the object by more than 0.2: the square one of its cell, and both of the column before.
    wanted = places + 8 * 0.5 * 0.25 / 2 + 2 * (overlap - 0.5) ** 2 / 2 + 4 * math.log(2)
    torch.testing.assert_close(layer(x, labels), torch.tensor(wanted))
    layer(x, labels).backward()
    own = gradient_of(x)[0, 7:, 1, 2]
    scores = torch.tensor([2.0, -2])
    torch.testing.assert_close(own[5:], scores)
    torch.testing.assert_close(own[:4], torch.tensor([3 * 0.25 * 0.25, 0, 0, 0]))
    torch.testing.assert_close(own[4], torch.tensor(2 * (0.5 - overlap) * 0.25))
    with pytest.raises(DataError, match=r"label 2 of \"x1\" is outside \[0, 2\), its num_class"):
        layer(x, labels + torch.eye(10)[0])


def test_classes_without_a_softmax_have_a_sigmoid_each() -> None:
    """Of one cell: all but the classes is the same as with a softmax."""
    labels = torch.tensor([[1, 0.5, 0.5, 0.25, 0.25]])
    x = torch.linspace(-1, 2, 7).view(1, 7, 1, 1)
    losses = [
        one_layer(
            region(f"class_scale: 3 softmax: {softmax}", 1).replace("1, 1, 2, 0.5", "1, 1"), (1, 7, 1, 1), (1, 5)
        )(x, labels)
        for softmax in (0, 1)
    ]
    no, yes = x.flatten()[5:].tolist()
    sigmoids = math.log(1 + math.exp(no)) + math.log(1 + math.exp(-yes))
    torch.testing.assert_close(losses[0] - losses[1], torch.tensor(3 * (sigmoids - math.log(1 + math.exp(no - yes)))))


def test_region_loss_on_ranks() -> None:
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(5, 14, 2, 3, generator=generator)
    labels = torch.rand(5, 10, generator=generator) * 0.9
    labels[:, [0, 5]] = 1
    loss = one_layer(region(), (5, 14, 2, 3), (5, 10))(whole, labels)

    def run(context: PassContext) -> Tensor:
        rows = rows_of(context.split(5))
        part: Tensor = one_layer(region(), (5, 14, 2, 3), (5, 10), context=context)(whole[rows], labels[rows])
        return part

    torch.testing.assert_close(sum(on_ranks((2, 0, 3), run)), loss)


def test_margins_and_transforms_on_ranks() -> None:
    generator = torch.Generator().manual_seed(3)
    x, theta = torch.rand(5, 2, 3, 4, generator=generator), torch.rand(5, 6, generator=generator)
    labels = torch.tensor([0.0, 1, 1, 0, 1])

    def run(context: PassContext, rows: list[int]) -> list[Tensor]:
        margin = 'type: "MarginInnerProduct" margin_inner_product_param { num_output: 2 base: 3 type: TRIPLE }'
        layer = randomise(one_layer(margin, (5, 24), (5,), tops=2, context=context))
        top, plain = layer(x[rows].flatten(1), labels[rows])
        layer = one_layer('type: "SpatialTransformer"', (5, 2, 3, 4), (5, 6), context=context)
        return [layer(x[rows], theta[rows]), top, plain]

    moved, scores, plain = run(PassContext(), list(range(5)))
    ranks = on_ranks((2, 0, 3), lambda context: run(context, list(rows_of(context.split(5)))))
    torch.testing.assert_close(torch.cat([rank[0] for rank in ranks]), moved)
    torch.testing.assert_close(torch.cat([rank[1] for rank in ranks]), scores)
    assert plain == 3
    torch.testing.assert_close(sum(rank[2] for rank in ranks), plain)


def test_resizing_is_keys_curve() -> None:
    """torch's bicubic has a = -3/4, so its curve is worked out here: a line is a line, a step is Keys' step."""
    layer = one_layer('type: "ImResize" imresize_param { factor: 2 }', (1, 1, 1, 8))
    line = torch.arange(8.0).reshape(1, 1, 1, 8)
    torch.testing.assert_close(layer(line)[0, 0, 0, 4:12], torch.arange(4, 12) / 2 - 0.25)
    step = (line > 3).float()
    # At a quarter and three quarters between cells 3 and 4: t³ (-1/2 - ...) by a = -1/2.
    curve = [torch.tensor(t / 2 + 2 * t**2 - 3 / 2 * t**3 - t**2 / 2 + t**3 / 2) for t in (0.25, 0.75)]
    torch.testing.assert_close(layer(step)[0, 0, 0, 7:9], torch.stack(curve))


def test_scales_are_cut_and_averaged() -> None:
    text = 'type: "ImResize" imresize_param { target_spatial_height: 4 target_spatial_width: 4 scale_gap: 0.5 }'
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    alone = one_layer('type: "ImResize" imresize_param { factor: 0.5 }', (1, 1, 8, 8))
    middle = one_layer('type: "ImResize" imresize_param { factor: 1 }', (1, 1, 4, 4))
    wanted = (alone(x[:1]) + middle(x[1:, :, 2:6, 2:6])) / 2
    torch.testing.assert_close(one_layer(text, (2, 1, 8, 8))(x), wanted)
    assert shapes_of(text, (2, 3, 8, 8)) == ((1, 3, 4, 4),)


def test_peaks() -> None:
    x = torch.zeros(1, 2, 6, 7)
    x[0, 0, 2, 3], x[0, 0, 2, 4] = 4, 1
    x[0, 0, 4, 1] = 0.6  # more than 0.5
    x[0, 0, 0, 0] = 9  # on the border
    x[0, 1] = 1  # flat
    layer = one_layer('type: "Nms" nms_param { num_parts: 2 max_peaks: 3 }', (1, 2, 6, 7))
    top = layer(x)
    assert top.shape == (1, 2, 4, 3)
    # The 5 × 5 places around the first one reach neither the corner nor the column of the last.
    first = torch.tensor([(3 * 4 + 4 * 1 + 1 * 0.6) / 5.6, (2 * 5 + 4 * 0.6) / 5.6, 4])
    second = torch.tensor([(1 * 0.6 + 3 * 4) / 4.6, (4 * 0.6 + 2 * 4) / 4.6, 0.6])
    torch.testing.assert_close(top[0, 0], torch.stack([torch.tensor([2.0, 0, 0]), first, second, torch.zeros(3)]))
    assert top[0, 1].abs().max() == 0
    one = one_layer('type: "Nms" nms_param { num_parts: 2 max_peaks: 1 }', (1, 2, 6, 7))(x)
    torch.testing.assert_close(one[0, 0], top[0, 0, :2] * torch.tensor([[0.5], [1]]))
    assert functional.relu(top).equal(top)


@pytest.mark.parametrize(
    ("text", "shapes", "words"),
    [
        ('type: "MarginInnerProduct"', [(2, 3), (2,)], "needs num_output"),
        ('type: "MarginInnerProduct" margin_inner_product_param { num_output: 2 }', [(2, 3), (3,)], "N labels"),
        ('type: "SpatialTransformer" st_param { sampler_type: "nearest" }', [(2, 3, 4, 5), (2, 6)], 'be "bilinear"'),
        ('type: "SpatialTransformer" st_param { theta_1_1: 1 }', [(2, 3, 4, 5), (2, 6)], "and 5 numbers for each"),
        (region(anchors=3), [(1, 14, 2, 3), (1, 5)], "needs 6 biases above 0"),
        (region("coords: 5"), [(1, 14, 2, 3), (1, 5)], "coords must be 4"),
        (region(), [(1, 15, 2, 3), (1, 5)], "needs boxes (N, 14, H, W) for 2 anchors and 2 classes"),
        ('type: "ImResize" imresize_param { scale_gap: 1 }', [(2, 1, 4, 4)], "leave map 1 of 2 nothing"),
        ('type: "Nms" nms_param { num_parts: 3 }', [(1, 2, 4, 4)], "a map for each of num_parts 3"),
    ],
)
def test_mistakes(text: str, shapes: list[tuple[int, ...]], words: str) -> None:
    assert words in error_of(text, *shapes)
