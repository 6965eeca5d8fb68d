"""Every layer on the shares of a batch: together the ranks make what one process makes of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from bpt.graph.share import Share
from bpt.nn.layers import LAYERS, Layer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.nn.layers.joining_layers import CASES, Case
from tests.nn.layers.one_bottom_layers import LAYERS as BODIES
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import SEED, on_ranks, rows_of, run_layer, whole_of
from tests.support.one_layer import gradient_of, one_layer, randomise

SAMPLES = 7
SPLITS = [((4, 3), 0.0), ((1, 0, 6), 0.0), ((0, 2, 5), 0.5), ((7, 0), 0.9)]
splits = pytest.mark.parametrize(("counts", "rotation"), SPLITS)

SOFTMAX = 'type: "SoftmaxWithLoss"'
LOGISTIC = 'type: "SigmoidCrossEntropyLoss"'
MORE = {
    "cut borders": Case('type: "CropCenter" crop_center_param { crop_size: [0, 1, 1, 0] }'),
    "dropout scales tests": Case('type: "Dropout" dropout_param { scale_train: false }'),
    "one number of pixels": Case('type: "SegAccuracy" seg_accuracy_param { metric: PixelIOU }', labels=True),
    "softmax loss, ignoring": Case(f"{SOFTMAX} loss_param {{ ignore_label: 1 }}", labels=True),
    "softmax loss, full": Case(f"{SOFTMAX} loss_param {{ ignore_label: 1 normalization: FULL }}", labels=True),
    "softmax loss, by samples": Case(f"{SOFTMAX} loss_param {{ normalization: BATCH_SIZE }}", labels=True),
    "softmax loss, a sum": Case(f"{SOFTMAX} loss_param {{ normalization: NONE }}", labels=True),
    "logistic loss": Case(LOGISTIC, blobs=2),
    "weighted boxes": Case('type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 3 }', blobs=4),
    "boxes' losses": Case('type: "SmoothL1LossOHEM"', blobs=2, tops=2),
    "labels' losses": Case('type: "SoftmaxWithLossOHEM" loss_param { ignore_label: 1 }', labels=True, tops=3),
    "weighted classes": Case(
        f"{SOFTMAX} loss_param {{ weight_by_label_freqs: true class_weighting: [1, 2, 3, 0.5] }}", labels=True
    ),
    "focal, of places": Case('type: "FocalLoss" loss_param { ignore_label: 1 }', labels=True),
    "flows": Case('type: "L1Loss" l1_loss_param { l2_per_location: true }', blobs=2),
    "flows, of entries": Case('type: "L1Loss" l1_loss_param { normalize_by_num_entries: true }', blobs=2),
    "correlations": Case(
        'type: "Correlation" correlation_param { pad: 1 kernel_size: 1 max_displacement: 1 }', blobs=2
    ),
    "cells": Case('type: "Reorg" reorg_param { stride: 2 reverse: true }'),
    "axes": Case('type: "Transpose" transpose_param { dim: 0 dim: 2 dim: 3 dim: 1 }'),
    "triplets": Case('type: "TripletLoss"', blobs=3),
    "peaks": Case('type: "Nms" nms_param { num_parts: 3 max_peaks: 2 threshold: 0.3 }'),
    "pixels": Case('type: "SegAccuracy" seg_accuracy_param { ignore_label: 1 output_label: 2 }', labels=True, tops=2),
    "segnet's bn": Case('type: "BN" bn_param { bn_mode: LEARN }'),
    "pspnet's bn": Case('type: "BN" bn_param { frozen: false }'),
    "tiles": Case('type: "Unpooling" unpooling_param { unpool: TILE kernel_size: 2 stride: 2 }'),
    "power": Case('type: "Power" power_param { power: 2 shift: 1 }'),
    "attention": Case('type: "Attention"', blobs=3),
    "logistic loss, ignoring": Case(f"{LOGISTIC} loss_param {{ normalization: VALID ignore_label: 0 }}", blobs=2),
}
ALL = {name: Case(body) for name, body in BODIES.items()} | CASES | MORE


def bottoms_of(case: Case, shape: Sequence[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    blobs = [torch.rand(tuple(shape), generator=generator) for _ in range(case.blobs)]
    labels = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator).float()
    return [*blobs, labels] if case.labels else blobs


def shapes_of(bottoms: Sequence[Tensor]) -> list[tuple[int, ...]]:
    return [tuple(bottom.shape) for bottom in bottoms]


def make(case: Case, bottoms: Sequence[Tensor], context: PassContext) -> Layer:
    return randomise(one_layer(case.body, *shapes_of(bottoms), tops=case.tops, context=context))


def in_layout(bottoms: Sequence[Tensor], channels_last: bool) -> list[Tensor]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return [b.contiguous(memory_format=layout) if b.dim() == 4 else b for b in bottoms]


@splits
@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("case", ALL.values(), ids=ALL.keys())
def test_ranks_make_what_one_process_makes(
    case: Case, channels_last: bool, counts: tuple[int, ...], rotation: float
) -> None:
    whole = bottoms_of(case, (SAMPLES, 4, 7, 6) if case.body in BODIES.values() else (SAMPLES, 4, 3, 2))
    layer = make(case, whole, PassContext(SEED))
    assert layer.mixes_samples(layer.spec, shapes_of(whole)) == ""
    tops, diffs, gradients, blobs = run_layer(layer, in_layout(whole, channels_last), case.blobs)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        rows = rows_of(context.split(SAMPLES), rotation)
        mine = in_layout([bottom[rows] for bottom in whole], channels_last)
        return run_layer(make(case, whole, context), mine, case.blobs, rows)

    ranks = on_ranks(counts, run, rotation=rotation, sync_batch_norm=True)
    for index, top in enumerate(tops):
        parts = [rank[0][index] for rank in ranks]
        summed = index < layer.sums_over_samples or not top.dim()
        torch.testing.assert_close(sum(parts) if summed else whole_of(parts, counts, rotation), top)
    for index, diff in enumerate(diffs):
        torch.testing.assert_close(whole_of([rank[1][index] for rank in ranks], counts, rotation), diff)
    for index, gradient in enumerate(gradients):
        torch.testing.assert_close(sum(rank[2][index] for rank in ranks), gradient, rtol=1e-4, atol=1e-5)
    for rank in ranks:
        torch.testing.assert_close(rank[3], blobs)  # a BatchNorm's statistics


def drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(shape, generator=generator) for shape in shapes]


# Bottoms of other shapes than those above, and how many of them get a diff.
CONTRASTIVE = 'type: "ContrastiveLoss" contrastive_loss_param {{ margin: 2 legacy_version: {} }}'
PAIRS = [*drawn((SAMPLES, 3), (SAMPLES, 3)), torch.tensor([0.0, 1, 1, 0, 0, 1, 0])]
CLASSES = [*drawn((SAMPLES, 3)), torch.arange(7.0) % 3]
FACTORS = drawn((7, 4), (7, 4, 3, 2), (7, 4, 3, 2))
OTHERS: list[tuple[str, list[Tensor], int]] = [
    (CONTRASTIVE.format("true"), PAIRS, 2),
    (CONTRASTIVE.format("false"), PAIRS, 2),
    ('type: "HingeLoss"', CLASSES, 1),
    ('type: "HingeLoss" hinge_loss_param { norm: L2 }', CLASSES, 1),
    ('type: "MultinomialLogisticLoss"', CLASSES, 1),
    ('type: "CenterLoss" center_loss_param { num_output: 3 }', CLASSES, 1),
    ('type: "FocalLoss"', [CLASSES[0], drawn((SAMPLES, 3))[0].round()], 1),  # MORE has it with a label for each place
    ('type: "Crop" crop_param { offset: 1 }', drawn((7, 4, 4, 4), (7, 4, 2, 3)), 1),
    ('type: "Upsample"', [drawn((7, 4, 4, 3))[0], drawn((7, 4, 4, 3))[0] * 48], 1),
    (
        'type: "Unpooling" unpooling_param { kernel_size: 2 stride: 2 }',
        [blob * 48 for blob in drawn(*[(7, 4, 4, 3)] * 2)],
        1,
    ),
    ('type: "Interp"', drawn((7, 4, 4, 3), (7, 1, 2, 9)), 1),
    ('type: "Axpy"', FACTORS, 3),
    ('type: "Axpy"', in_layout(FACTORS, True), 3),
]


@pytest.mark.parametrize(("body", "whole", "blobs"), OTHERS)
def test_other_bottoms(body: str, whole: list[Tensor], blobs: int) -> None:
    case, counts = Case(body, blobs), (2, 0, 5)
    layer = make(case, whole, PassContext())
    (top,), diffs, gradients, _ = run_layer(layer, whole, blobs)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        rows = rows_of(context.split(SAMPLES))
        return run_layer(make(case, whole, context), [bottom[rows] for bottom in whole], blobs, rows)

    ranks = on_ranks(counts, run)
    tops = [rank[0][0] for rank in ranks]
    torch.testing.assert_close(whole_of(tops, counts) if top.dim() else sum(tops), top)
    for index, diff in enumerate(diffs):
        torch.testing.assert_close(whole_of([rank[1][index] for rank in ranks], counts), diff)
    for index, gradient in enumerate(gradients):
        torch.testing.assert_close(sum(rank[2][index] for rank in ranks), gradient)
    if top.dim():
        assert layer.mixes_samples(layer.spec, shapes_of(whole)) == ""


@pytest.mark.parametrize("case", [*MORE.values(), Case('type: "BatchNorm"'), Case('type: "Dropout"')])
def test_replica_scope(case: Case) -> None:
    """Each of 2 ranks has the batch that the text names: together they have one of twice the size."""
    whole = bottoms_of(case, (6, 4, 3, 2))
    tops, diffs, _, blobs = run_layer(make(case, whole, PassContext(SEED)), whole, case.blobs)

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        share = context.split(3)
        assert (share.count, share.total) == (3, 6)
        rows = rows_of(share)
        mine = [bottom[rows] for bottom in whole]
        return run_layer(make(case, mine, context), mine, case.blobs, rows)

    ranks = on_ranks((3, 3), run, sync_batch_norm=True)
    parts = [rank[0][0] for rank in ranks]
    torch.testing.assert_close(sum(parts) if parts[0].shape == tops[0].shape else torch.cat(parts), tops[0])
    if diffs:  # SegAccuracy hands none back
        torch.testing.assert_close(torch.cat([rank[1][0] for rank in ranks]), diffs[0])
    for rank in ranks:
        torch.testing.assert_close(rank[3], blobs)


@pytest.mark.parametrize("ignored", ["", "loss_param { ignore_label: 1 }"])
def test_unweighted_mean_of_the_ranks_means(ignored: str) -> None:
    # StaticLB: g = 1/P · Σ g_p, a rank without samples has g_p = 0.
    body, counts = f"{SOFTMAX} {ignored}", (4, 0, 3)
    scores, labels = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(1)), torch.arange(7.0) % 3
    means = [
        one_layer(body, (len(rows), 3), (len(rows),))(scores[rows], labels[rows])
        for rows in ([0, 1, 2, 3], [], [4, 5, 6])
    ]

    def run(context: PassContext) -> Tensor:
        rows = rows_of(context.split(SAMPLES))
        loss: Tensor = one_layer(body, (SAMPLES, 3), (SAMPLES,), context=context)(scores[rows], labels[rows])
        return loss

    torch.testing.assert_close(sum(on_ranks(counts, run, unweighted=True)), sum(means) / 3)
    # A test's loss is nobody's gradient: it is the mean over the samples.
    whole = one_layer(body, (SAMPLES, 3), (SAMPLES,))(scores, labels)

    def test(context: PassContext) -> Tensor:
        rows = rows_of(context.split(SAMPLES))
        layer = one_layer(body, (SAMPLES, 3), (SAMPLES,), context=context, phase=1)
        loss: Tensor = layer(scores[rows], labels[rows])
        return loss

    torch.testing.assert_close(sum(on_ranks(counts, test, unweighted=True)), whole)


def test_batch_norm_by_own_samples() -> None:
    # Without sync, as Caffe's on several GPUs: each rank is a batch of its own, and no samples change nothing.
    x = torch.rand(5, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    case = Case('type: "BatchNorm" batch_norm_param { sync: false }')
    alone = run_layer(make(case, [x[:2]], PassContext()), [x[:2]], 1)
    untouched = [blob.detach() for blob in make(case, [x], PassContext()).blobs]

    def run(context: PassContext) -> tuple[list[Tensor], ...]:
        mine = [x[rows_of(context.split(5))]]
        return run_layer(make(case, [x], context), mine, 1)

    first, empty, _ = on_ranks((2, 0, 3), run, sync_batch_norm=True)
    torch.testing.assert_close(first, alone)
    assert empty[0][0].shape == empty[1][0].shape == (0, 3, 2, 2)
    assert all(map(torch.equal, empty[3], untouched))


NET = """
layer { name: "in" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 6 dim: 2 dim: 9 dim: 9 } shape { dim: 6 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "c1"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "c1" top: "c1" }
layer { name: "scale1" type: "Scale" bottom: "c1" top: "c1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "left" type: "Convolution" bottom: "c1" top: "l"
        convolution_param { num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "left_bn" type: "BatchNorm" bottom: "l" top: "l" }
layer { name: "right" type: "Convolution" bottom: "c1" top: "r"
        convolution_param { num_output: 8 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "lrn" type: "LRN" bottom: "r" top: "rn" }
layer { name: "right_bn" type: "BatchNorm" bottom: "rn" top: "rb" }
layer { name: "sum" type: "Eltwise" bottom: "l" bottom: "rb" bottom: "c1" top: "s" }
layer { name: "pool" type: "Pooling" bottom: "s" top: "p" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "p" top: "i1"
        inner_product_param { num_output: 20 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "i1" top: "i1" }
layer { name: "ip2" type: "InnerProduct" bottom: "i1" top: "i2"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "i2" bottom: "label" top: "loss"
        loss_param { ignore_label: 0 } }
layer { name: "accuracy" type: "Accuracy" bottom: "i2" bottom: "label" top: "accuracy" }
"""


def run_net(context: PassContext, data: Tensor, label: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    net = Net(graph_of(NET), context)
    values: dict[int, Tensor] = dict(zip(net.graph.nodes[0].tops, (data, label), strict=True))
    net.run(0, len(net.graph), values)
    by_name = {edge.blob: values[edge.index] for edge in net.graph.outputs}
    by_name["loss"].backward()
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    assert all(parameter.grad is not None for parameter in trained)
    stored = [p.detach() for p in net.parameters() if not p.requires_grad]
    return by_name["loss"].detach(), by_name["accuracy"], [*map(gradient_of, trained), *stored]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("counts", [(3, 3), (5, 0, 1), (0, 6)])
def test_a_net_with_branches(counts: tuple[int, ...], layout: torch.memory_format) -> None:
    """A rank without samples goes through all sums over ranks in the order of the others, also backward."""
    data = torch.randn(6, 2, 9, 9, generator=torch.Generator().manual_seed(1))
    label = torch.tensor([0.0, 1, 2, 0, 1, 1])
    loss, accuracy, numbers = run_net(PassContext(SEED), data.contiguous(memory_format=layout), label)

    def run(context: PassContext) -> tuple[Tensor, Tensor, list[Tensor]]:
        rows = rows_of(context.split(6))
        return run_net(context, data[rows].contiguous(memory_format=layout), label[rows])

    ranks = on_ranks(counts, run, sync_batch_norm=True)
    torch.testing.assert_close(sum(rank[0] for rank in ranks), loss)
    torch.testing.assert_close(sum(rank[1] for rank in ranks), accuracy)
    trained = len(numbers) - 9  # three BatchNorms have three blobs each
    for index, number in enumerate(numbers):
        found = [rank[2][index] for rank in ranks]
        if index < trained:
            torch.testing.assert_close(sum(found), number, rtol=1e-4, atol=1e-5)
        else:
            for one in found:
                torch.testing.assert_close(one, number)


def test_an_int_is_scaled_exactly_and_a_tensor_summed() -> None:
    def run(context: PassContext) -> tuple[Tensor | int, list[int]]:
        layer = one_layer('type: "EuclideanLoss"', (7, 2), (7, 2), context=context)
        samples = context.split(7).count
        summed = layer.of_whole_batch(torch.tensor([samples, 1]))
        assert isinstance(summed, Tensor)
        return layer.of_whole_batch(10**17 * samples), summed.tolist()

    assert on_ranks((4, 0, 3), run) == [(7 * 10**17, [7, 3]), (0, [7, 3]), (7 * 10**17, [7, 3])]


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        ('type: "Concat" concat_param { axis: 0 }', [(4, 3), (4, 3)], "it joins blobs along axis 0, the samples"),
        ('type: "Concat" concat_param { axis: -2 }', [(4, 3), (4, 3)], "it joins blobs along axis 0, the samples"),
        ('type: "Concat" concat_param { axis: 0 }', [(4, 3)], ""),
        ('type: "Flatten" flatten_param { axis: 0 }', [(4, 3)], "it makes one axis of the samples (axis 0) and others"),
        ('type: "Flatten" flatten_param { axis: 0 end_axis: 0 }', [(4, 3)], ""),
        ('type: "Softmax" softmax_param { axis: 0 }', [(4, 3)], "its softmax runs along axis 0, the samples"),
        (
            'type: "SoftmaxWithLoss" softmax_param { axis: 0 }',
            [(4, 4), (4,)],
            "its softmax runs along axis 0, the samples",
        ),
        ('type: "Accuracy" accuracy_param { axis: -2 }', [(4, 4), (4,)], "its classes are along axis 0, the samples"),
        ('type: "Accuracy"', [(4, 3), (1, 4)], 'bottom "x1" (1, 4) has another axis 0 than "x0" (4, 3)'),
        (
            'type: "InnerProduct" inner_product_param { num_output: 2 axis: 0 }',
            [(4, 3)],
            "it adds up along axis 0, the samples",
        ),
        (
            'type: "Convolution" convolution_param { num_output: 2 kernel_size: 1 axis: 0 }',
            [(4, 3, 3)],
            "it takes axis 0, the samples, for channels",
        ),
        ('type: "Scale" scale_param { axis: 0 }', [(4, 3)], "it learns coefficients for each sample (axis 0)"),
        ('type: "Bias" bias_param { axis: 0 }', [(4, 3)], "it learns coefficients for each sample (axis 0)"),
        ('type: "Scale" scale_param { axis: 0 num_axes: 0 }', [(4, 3)], ""),
        ('type: "Scale" scale_param { axis: 0 }', [(4, 3), (4,)], ""),
        (
            'type: "Scale" scale_param { axis: 0 bias_term: true }',
            [(4, 3), (4,)],
            "it learns coefficients for each sample (axis 0)",
        ),
        ('type: "Scale"', [(4, 3), (3,)], 'bottom "x1" (3,) has no axis for the samples'),
        ('type: "Bias"', [(4, 3), ()], 'bottom "x1" () has no axis for the samples'),
        ('type: "ArgMax" argmax_param { axis: -2 }', [(4, 3)], "it searches along axis 0, the samples"),
        ('type: "ArgMax"', [(4, 3)], ""),
        ('type: "MVN"', [(4, 3)], ""),
        ('type: "Tile" tile_param { axis: -2 tiles: 2 }', [(4, 3)], "it repeats the batch along axis 0, the samples"),
        ('type: "Tile" tile_param { axis: 0 tiles: 1 }', [(4, 3)], ""),
        ('type: "Permute" permute_param { order: 1 }', [(4, 3)], "it moves axis 0, the samples"),
        ('type: "Permute" permute_param { order: 0 }', [(4, 3)], ""),
        ('type: "Permute"', [(4, 3)], ""),
        (
            'type: "Reshape" reshape_param { shape { dim: 2 dim: -1 } }',
            [(4, 3)],
            "it makes (2, 6) of (4, 3), which changes axis 0, the samples",
        ),
        (
            'type: "Reshape" reshape_param { shape { dim: 1 } num_axes: 0 }',
            [(1, 3)],
            "it makes (1, 1, 3) of (1, 3), which changes axis 0, the samples",
        ),
        ('type: "Reshape" reshape_param { shape { dim: 4 dim: -1 } }', [(4, 3)], ""),
        ('type: "Reshape" reshape_param { shape { dim: -1 } axis: 1 }', [(4, 3)], ""),
        ('type: "Reshape" reshape_param { num_axes: 0 }', [(4, 3)], ""),
        ('type: "Reshape" reshape_param { shape { dim: 1 } }', [()], 'bottom "x0" is one number for all samples'),
        ('type: "Reduction"', [(4, 3)], ""),
        ('type: "Reduction" reduction_param { axis: 1 }', [(4, 3)], ""),
        ('type: "Axpy"', [(4, 3), (4, 3, 2), (4, 3, 2)], ""),
        ('type: "Power" power_param { power: 2 }', [()], 'bottom "x0" is one number for all samples'),
        ('type: "Eltwise"', [(), ()], 'bottom "x0" is one number for all samples'),
        ('type: "Split"', [()], ""),
        ('type: "BatchNorm"', [(4, 3)], ""),
        ('type: "Eltwise" eltwise_param { coeff: 2 coeff: -1 }', [(4, 3), (4, 3)], ""),
    ],
)
def test_layers_that_mix_samples(body: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    layer = one_layer(body, *shapes)
    assert layer.mixes_samples(layer.spec, shapes) == reason


def test_slice_and_silence_mix_samples() -> None:
    cut = one_layer('type: "Slice" slice_param { axis: 0 }', (4, 3), tops=2)
    assert cut.mixes_samples(cut.spec, [(4, 3)]) == "it cuts along axis 0, the samples"
    whole = one_layer('type: "Slice" slice_param { axis: 0 }', (4, 3))
    assert whole.mixes_samples(whole.spec, [(4, 3)]) == ""
    silence = one_layer('type: "Silence"', (), (4, 3), tops=0)
    assert silence.mixes_samples(silence.spec, [(), (4, 3)]) == ""


@pytest.mark.parametrize("counts", [(2, 0, 1), (0, 3)])
def test_objects_as_boxes(counts: tuple[int, ...]) -> None:
    """The loss of predicted boxes, divided by the matches of all ranks; what is found, and which of that is right."""
    generator = torch.Generator().manual_seed(3)
    corners = torch.rand(6, 2, generator=generator) / 2
    priors = torch.cat((corners, corners + 0.4), 1)
    prior = torch.stack((priors, torch.full_like(priors, 0.1))).view(1, 2, -1)
    rows = [[0.0, 1, 0, *priors[0], 0], [0, 2, 1, *priors[3], 0], [1, 1, 0, *priors[4], 0], [2, 2, 0, *priors[1], 1]]
    offsets, scores = (torch.randn(3, 6 * size, generator=generator, requires_grad=True) for size in (4, 3))
    bodies = (
        'type: "MultiBoxLoss" multibox_loss_param { num_classes: 3 }',
        'type: "DetectionOutput" detection_output_param { num_classes: 3 keep_top_k: 4 }',
        'type: "DetectionEvaluate" detection_evaluate_param { num_classes: 3 evaluate_difficult_gt: false }',
    )
    shapes = [(3, 24), (3, 18), (1, 2, 24), (1, 1, 4, 8)]
    used = (shapes, shapes[:3], [(1, 1, 1, 7), shapes[3]])

    def run(context: PassContext, samples: Sequence[int]) -> tuple[list[Tensor], ...]:
        loss, output, evaluate = (one_layer(b, *s, context=context) for b, s in zip(bodies, used, strict=True))
        mine = [[place, *row[1:]] for place, sample in enumerate(samples) for row in rows if row[0] == sample]
        objects = torch.tensor(mine or [[-1.0] * 8])[None, None]
        own = [blob[list(samples)].detach().requires_grad_() for blob in (offsets, scores)]
        value = loss(*own, prior, objects)
        diffs = torch.autograd.grad(value, own)
        found = output(own[0], own[1].detach().view(-1, 6, 3).softmax(2).flatten(1), prior)
        judged = evaluate(found, objects)[0, 0]
        real = judged[judged[:, 0] >= 0]
        real[:, 0] = torch.tensor(samples)[real[:, 0].long()] if len(real) else real[:, 0]
        return [value.detach(), *diffs], [judged[judged[:, 0] < 0], real]

    whole, (objects, judged) = run(PassContext(SEED), range(3))
    ranks = on_ranks(counts, lambda context: run(context, rows_of(context.split(3))))
    torch.testing.assert_close(sum(rank[0][0] for rank in ranks), whole[0])
    for index in (1, 2):
        torch.testing.assert_close(whole_of([rank[0][index] for rank in ranks], counts), whole[index])
    assert torch.stack([rank[1][0][:, 2] for rank in ranks]).sum(0).tolist() == objects[:, 2].tolist() == [2, 1]
    torch.testing.assert_close(torch.cat([rank[1][1] for rank in ranks]), judged)
    assert len(judged) == 12


def test_every_layer_type_has_been_here() -> None:
    """A new type needs a case above, or a reason why it cannot have one."""
    seen = {body.split('"')[1] for body in (*(case.body for case in ALL.values()), *(body for body, *_ in OTHERS))}
    seen |= {"Silence"}
    seen |= {"BoxAnnotatorOHEM", "PSROIPooling", "Proposal", "ROIAlign", "ROIPooling"}  # regions keep a batch together
    seen |= {"MultiBoxLoss", "DetectionOutput", "DetectionEvaluate"}
    seen |= {"MarginInnerProduct", "RegionLoss", "SpatialTransformer"}  # test_forks_heads.py has their ranks
    seen |= {"ImResize"}  # its samples are scales of one image
    seen |= {"MpiFc"}  # an InnerProduct; tests of model parallelism have its ranks
    seen |= {"ConvolutionDepthwise"}  # a DepthwiseConvolution, but for its settings
    seen |= {"PriorBox"}  # it makes of shapes alone, the same for all samples
    seen |= {"Embed"}  # test_embed.py has its ranks: its bottom gets no diff
    seen |= {"BatchReindex", "Filter", "LSTM", "LSTMUnit", "Parameter", "RNN"}  # they refuse; their own tests say how
    sources = {"AnnotatedData", "Data", "DummyData", "HDF5Data", "ImageData", "Input", "VolumeData", "WindowData"}
    sources |= {"DenseImageData", "ImageLabelmapData", "ImageSegData", "VideoData"}
    sources |= {"HDF5Output", "MemoryData"}  # they are for one process
    assert set(LAYERS) == seen | sources


def test_a_share_that_is_not_the_bottoms_is_a_mistake() -> None:
    layer = one_layer('type: "Dropout"', (4, 2), context=PassContext(ranks=2, split=lambda samples: Share(0, 3, 4)))
    with pytest.raises(AssertionError):
        layer(torch.zeros(2, 2))
