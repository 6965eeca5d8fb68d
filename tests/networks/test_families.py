"""Well-known families, made small, in the very layers and settings of their Caffe texts: all builds and learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from tests.networks.layer_texts import conv, dense, inputs, layer

FIXED = "param { lr_mult: 0 decay_mult: 0 } " * 3
PRIORS = "clip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5"
CLASSES = 3


def norm(bottom: str, top: str = "", relu: bool = True) -> str:
    """BatchNorm, Scale and ReLU, in place unless ``top`` is named."""
    top = top or bottom
    text = layer("BatchNorm", bottom, f"{top} ", f"{FIXED} batch_norm_param {{ eps: 1e-5 }}").replace(
        'name: "', 'name: "bn_', 1
    )
    text += layer("Scale", top, top, "scale_param { bias_term: true }").replace('name: "', 'name: "scale_', 1)
    return text + (layer("ReLU", top, top).replace('name: "', 'name: "relu_', 1) if relu else "")


def bare(name: str, bottom: str, outputs: int, more: str) -> str:
    return conv(name, bottom, outputs, f"bias_term: false {more}", relu=False)


def block(name: str, bottom: str, outputs: int, more: str, relu: bool = True) -> str:
    return bare(name, bottom, outputs, more) + norm(name, relu=relu)


def depthwise(name: str, bottom: str, channels: int, stride: int = 1, relu: bool = True) -> str:
    return block(
        name, bottom, channels, f"kernel_size: 3 pad: 1 stride: {stride} group: {channels} engine: CAFFE", relu
    )


def classified(bottom: str) -> str:
    return (
        layer("Pooling", bottom, "pooled", "pooling_param { pool: AVE global_pooling: true }")
        + dense("fc", "pooled", CLASSES)
        + layer("SoftmaxWithLoss", "fc label", "loss", "include { phase: TRAIN }")
        + layer("Accuracy", "fc label", "accuracy")
    )


PICTURES = {"data": (2, 3, 32, 32), "label": (2,)}
OBJECTS = {"data": (2, 3, 64, 64), "label": (1, 1, 3, 8)}


def heads(priors: dict[str, tuple[int, str]], conv_more: str = "kernel_size: 1") -> str:
    """SSD's behind each blob: how many priors a place has, and what says so."""
    text = ""
    for blob, (number, prior) in priors.items():
        for kind, outputs in (("loc", 4 * number), ("conf", CLASSES * number)):
            top = f"{blob}_{kind}"
            text += conv(top, blob, outputs, conv_more, relu=False)
            text += layer("Permute", top, f"{top}_perm", "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            text += layer("Flatten", f"{top}_perm", f"{top}_flat", "flatten_param { axis: 1 }")
        text += layer("PriorBox", f"{blob} data", f"{blob}_prior", f"prior_box_param {{ {prior} {PRIORS} }}")
    for kind, suffix, axis in (("loc", "_flat", 1), ("conf", "_flat", 1), ("prior", "", 2)):
        bottoms = " ".join(f"{blob}_{kind}{suffix}" for blob in priors)
        text += layer("Concat", bottoms, f"mbox_{kind}", f"concat_param {{ axis: {axis} }}")
    return text + layer(
        "MultiBoxLoss",
        "mbox_loc mbox_conf mbox_prior label",
        "loss",
        f"include {{ phase: TRAIN }} propagate_down: [true, true, false, false] loss_param {{ normalization: VALID }} "
        f"multibox_loss_param {{ loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX loc_weight: 1 num_classes: {CLASSES} "
        "share_location: true match_type: PER_PREDICTION overlap_threshold: 0.5 use_prior_for_matching: true "
        "background_label_id: 0 use_difficult_gt: true neg_pos_ratio: 3 neg_overlap: 0.5 code_type: CENTER_SIZE "
        "ignore_cross_boundary_bbox: false mining_type: MAX_NEGATIVE }",
    )


def mobilenet_ssd() -> str:
    text = inputs(**OBJECTS) + block("conv0", "data", 8, "kernel_size: 3 pad: 1 stride: 2")
    last, channels = "conv0", 8
    for number, (outputs, stride) in enumerate(((8, 1), (12, 2), (12, 2), (16, 2)), 1):
        text += depthwise(f"conv{number}/dw", last, channels, stride)
        text += block(f"conv{number}", f"conv{number}/dw", outputs, "kernel_size: 1")
        last, channels = f"conv{number}", outputs
    text += block("conv14_1", last, 8, "kernel_size: 1") + block(
        "conv14_2", "conv14_1", 16, "kernel_size: 3 pad: 1 stride: 2"
    )
    boxes = "aspect_ratio: 2 aspect_ratio: 3 flip: true"
    return text + heads(
        {"conv4": (3, "min_size: 20 aspect_ratio: 2 flip: true"), "conv14_2": (6, f"min_size: 30 max_size: 50 {boxes}")}
    )


def pelee() -> str:
    text = inputs(**OBJECTS) + block("stem1", "data", 8, "kernel_size: 3 pad: 1 stride: 2")
    text += block("stem2a", "stem1", 4, "kernel_size: 1") + block(
        "stem2b", "stem2a", 8, "kernel_size: 3 pad: 1 stride: 2"
    )
    text += layer("Pooling", "stem1", "stem1_pool", "pooling_param { kernel_size: 2 stride: 2 }")
    text += layer("Concat", "stem1_pool stem2b", "stem") + block("stage0", "stem", 8, "kernel_size: 1")
    last, channels = "stage0", 8
    for stage in (1, 2):
        for number in (1, 2):
            name = f"stage{stage}_{number}"
            text += block(f"{name}/a1", last, 4, "kernel_size: 1") + block(
                f"{name}/a2", f"{name}/a1", 2, "kernel_size: 3 pad: 1"
            )
            text += block(f"{name}/b1", last, 4, "kernel_size: 1") + block(
                f"{name}/b2", f"{name}/b1", 2, "kernel_size: 3 pad: 1"
            )
            text += block(f"{name}/b3", f"{name}/b2", 2, "kernel_size: 3 pad: 1")
            text += layer("Concat", f"{last} {name}/a2 {name}/b3", f"{name}/concat")
            last, channels = f"{name}/concat", channels + 4
        text += block(f"stage{stage}_tb", last, channels, "kernel_size: 1")
        text += layer(
            "Pooling", f"stage{stage}_tb", f"stage{stage}_pool", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }"
        )
        last = f"stage{stage}_pool"
    text += block("res_a", last, 8, "kernel_size: 1") + block("res_b", "res_a", 16, "kernel_size: 3 pad: 1", relu=False)
    text += (
        block("res_c", last, 16, "kernel_size: 1", relu=False)
        + layer("Eltwise", "res_b res_c", "res")
        + layer("ReLU", "res", "res_out")
    )
    return text + heads({"res_out": (4, "min_size: 15 max_size: 30 aspect_ratio: 2 flip: true")})


def faceboxes() -> str:
    def crelu(name: str, bottom: str, outputs: int, more: str) -> str:
        return (
            block(name, bottom, outputs, more, relu=False)
            + layer("Power", name, f"{name}/neg", "power_param { power: 1 scale: -1 shift: 0 }")
            + layer("Concat", f"{name} {name}/neg", f"{name}/both")
            + layer("ReLU", f"{name}/both", f"{name}/both_r")
        )

    text = inputs(**OBJECTS) + crelu("conv1", "data", 6, "kernel_size: 7 pad: 3 stride: 4")
    text += layer("Pooling", "conv1/both_r", "pool1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    text += crelu("conv2", "pool1", 8, "kernel_size: 5 pad: 2 stride: 1")
    last = "conv2/both_r"
    for name in ("inception1", "inception2"):
        text += block(f"{name}/a", last, 4, "kernel_size: 1")
        text += layer("Pooling", last, f"{name}/pool", "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")
        text += block(f"{name}/b", f"{name}/pool", 4, "kernel_size: 1")
        text += block(f"{name}/c1", last, 3, "kernel_size: 1") + block(
            f"{name}/c2", f"{name}/c1", 4, "kernel_size: 3 pad: 1"
        )
        text += layer("Concat", f"{name}/a {name}/b {name}/c2", f"{name}/out")
        last = f"{name}/out"
    text += block("conv3_1", last, 8, "kernel_size: 1") + block(
        "conv3_2", "conv3_1", 16, "kernel_size: 3 stride: 2 pad: 1"
    )
    return text + heads(
        {last: (2, "min_size: 10 min_size: 16"), "conv3_2": (1, "min_size: 28 step: 16")}, "kernel_size: 3 pad: 1"
    )


def densenet(blocks: tuple[int, ...] = (2, 3, 4, 2), growth: int = 4) -> str:
    text = inputs(**PICTURES) + block("conv1", "data", 2 * growth, "kernel_size: 7 pad: 3 stride: 2")
    text += layer("Pooling", "conv1", "pool1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }")
    last, channels = "pool1", 2 * growth
    for stage, number in enumerate(blocks, 2):
        for place in range(1, number + 1):
            name = f"conv{stage}_{place}"
            text += norm(last, f"{name}/x1/bn") + bare(f"{name}/x1", f"{name}/x1/bn", 4 * growth, "kernel_size: 1")
            text += norm(f"{name}/x1", f"{name}/x2/bn") + bare(
                f"{name}/x2", f"{name}/x2/bn", growth, "kernel_size: 3 pad: 1"
            )
            text += layer("Dropout", f"{name}/x2", f"{name}/x2_drop", "dropout_param { dropout_ratio: 0.2 }")
            text += layer("Concat", f"{last} {name}/x2_drop", f"concat_{stage}_{place}")
            last, channels = f"concat_{stage}_{place}", channels + growth
        text += norm(last, f"blk{stage}/bn")
        last = f"blk{stage}/bn"
        if stage < len(blocks) + 1:
            channels //= 2
            text += bare(f"blk{stage}", last, channels, "kernel_size: 1")
            text += layer(
                "Pooling", f"blk{stage}", f"pool{stage}", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }"
            )
            last = f"pool{stage}"
    return text + classified(last)


def dpn() -> str:
    """Each block's outputs are cut: the first 8 are added to what came, 4 more join it."""
    text = inputs(**PICTURES) + block("conv1", "data", 8, "kernel_size: 3 pad: 1 stride: 2")
    text += block("proj", "conv1", 16, "kernel_size: 1")
    text += layer("Slice", "proj", "res0 dense0", "slice_param { axis: 1 slice_point: 8 }")
    joined, residual, dense_path, channels = "conv1", "res0", "dense0", 8
    for number in (1, 2):
        name = f"dpn{number}"
        text += block(f"{name}/a", joined, 8, "kernel_size: 1")
        text += block(f"{name}/b", f"{name}/a", 8, "kernel_size: 3 pad: 1 group: 4")
        text += block(f"{name}/c", f"{name}/b", 12, "kernel_size: 1")
        text += layer("Slice", f"{name}/c", f"{name}/c1 {name}/c2", "slice_param { axis: 1 slice_point: 8 }")
        text += layer("Eltwise", f"{residual} {name}/c1", f"{name}/res", "eltwise_param { operation: SUM }")
        text += layer("Concat", f"{dense_path} {name}/c2", f"{name}/dense")
        channels += 4
        text += layer("Concat", f"{name}/res {name}/dense", f"{name}/joined")
        joined, residual, dense_path = f"{name}/joined", f"{name}/res", f"{name}/dense"
    return text + norm(joined, "last") + classified("last")


def xception() -> str:
    text = (
        inputs(**PICTURES)
        + block("conv1", "data", 6, "kernel_size: 3 stride: 2")
        + block("conv2", "conv1", 8, "kernel_size: 3")
    )
    last, channels = "conv2", 8
    for number, outputs in enumerate((12, 16), 1):
        name = f"xception{number}"
        text += block(f"{name}_match", last, outputs, "kernel_size: 1 stride: 2", relu=False)
        text += layer("ReLU", last, f"{name}_elu")
        inner, width = f"{name}_elu", channels
        for part in (1, 2):
            text += bare(f"{name}_conv{part}_1", inner, width, f"kernel_size: 3 pad: 1 group: {width}")
            text += block(f"{name}_conv{part}_2", f"{name}_conv{part}_1", outputs, "kernel_size: 1", relu=part == 1)
            inner, width = f"{name}_conv{part}_2", outputs
        text += layer("Pooling", inner, f"{name}_pool", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }")
        text += layer("Eltwise", f"{name}_match {name}_pool", f"{name}_sum", "eltwise_param { operation: SUM }")
        last, channels = f"{name}_sum", outputs
    text += layer(
        "ConvolutionDepthwise",
        last,
        "exit",
        'convolution_param { num_output: 16 kernel_size: 3 pad: 1 bias_term: false weight_filler { type: "msra" } }',
    )
    return text + norm("exit") + classified("exit")


def shufflenet() -> str:
    text = inputs(**PICTURES) + block("conv1", "data", 6, "kernel_size: 3 pad: 1 stride: 2")
    text += layer("Pooling", "conv1", "pool1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    text += layer("Pooling", "pool1", "match", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }")
    last = "pool1"
    for number, (stride, outputs) in enumerate(((2, 12), (1, 18)), 1):
        name = f"resx{number}"
        text += block(f"{name}_conv1", last, 6, f"kernel_size: 1 group: {1 if number == 1 else 3}")
        text += layer("ShuffleChannel", f"{name}_conv1", f"shuffle{number}", "shuffle_channel_param { group: 3 }")
        text += layer(
            "DepthwiseConvolution", f"shuffle{number}", f"{name}_conv2",
            f'convolution_param {{ num_output: 6 group: 6 kernel_size: 3 pad: 1 stride: {stride} bias_term: false '
            'weight_filler { type: "msra" } }',
        ) + norm(f"{name}_conv2", relu=False)  # fmt: skip
        text += block(f"{name}_conv3", f"{name}_conv2", outputs, "kernel_size: 1 group: 3", relu=False)
        kind, other = ("Concat", "match") if stride == 2 else ("Eltwise", last)
        text += layer(kind, f"{other} {name}_conv3", f"{name}_join") + layer("ReLU", f"{name}_join", f"{name}_out")
        last = f"{name}_out"
    return text + classified(last)


def shufflenet_2() -> str:
    text = inputs(**PICTURES) + block("conv1", "data", 8, "kernel_size: 3 pad: 1 stride: 2")
    text += depthwise("left_dw", "conv1", 8, 2, relu=False) + block("left", "left_dw", 8, "kernel_size: 1")
    text += block("right_1", "conv1", 8, "kernel_size: 1") + depthwise("right_dw", "right_1", 8, 2, relu=False)
    text += block("right", "right_dw", 8, "kernel_size: 1") + layer("Concat", "left right", "first")
    text += layer("ShuffleChannel", "first", "mixed", "shuffle_channel_param { group: 2 }")
    text += layer("Slice", "mixed", "kept worked", "slice_param { slice_point: 8 axis: 1 }")
    text += (
        block("b1", "worked", 8, "kernel_size: 1")
        + depthwise("b2", "b1", 8, relu=False)
        + block("b3", "b2", 8, "kernel_size: 1")
    )
    text += layer("Concat", "kept b3", "second") + layer(
        "ShuffleChannel", "second", "out", "shuffle_channel_param { group: 2 }"
    )
    return text + classified("out")


def yolo_2() -> str:
    text = inputs(data=(2, 3, 32, 32), label=(2, 10)) + block("conv1", "data", 6, "kernel_size: 3 pad: 1 stride: 2")
    text += block("conv2", "conv1", 8, "kernel_size: 3 pad: 1 stride: 2")
    text += layer("Pooling", "conv2", "pool2", "pooling_param { kernel_size: 2 stride: 2 }") + block(
        "conv3", "pool2", 8, "kernel_size: 3 pad: 1"
    )
    text += layer("Reorg", "conv2", "passed", "reorg_param { stride: 2 }") + layer("Concat", "passed conv3", "all")
    text += conv("found", "all", 2 * (5 + CLASSES), "kernel_size: 1", relu=False)
    return text + layer(
        "RegionLoss", "found label", "loss",
        f"region_loss_param {{ side: 4 num_class: {CLASSES} coords: 4 num: 2 softmax: 1 rescore: 1 "
        "thresh: 0.6 biases: [1, 1, 2, 3] }",
    )  # fmt: skip


def sphereface() -> str:
    text = inputs(**PICTURES)
    last = "data"
    for name, outputs in (("conv1_1", 6), ("conv2_1", 8)):
        text += conv(name, last, outputs, "kernel_size: 3 pad: 1 stride: 2", relu=False) + layer(
            "PReLU", name, f"{name}_r"
        )
        text += conv(f"{name}a", f"{name}_r", outputs, "kernel_size: 3 pad: 1", relu=False) + layer(
            "PReLU", f"{name}a", f"{name}a_r"
        )
        text += layer("Eltwise", f"{name}_r {name}a_r", f"{name}_sum", "eltwise_param { operation: SUM }")
        last = f"{name}_sum"
    text += dense("fc5", last, 8)
    text += layer(
        "MarginInnerProduct", "fc5 label", "fc6 lambda",
        f'margin_inner_product_param {{ num_output: {CLASSES} type: QUADRUPLE base: 1000 gamma: 0.12 power: 1 '
        'lambda_min: 5 iteration: 0 weight_filler { type: "xavier" } }',
    )  # fmt: skip
    return text + layer("SoftmaxWithLoss", "fc6 label", "loss")


NETS = {
    "MobileNet-SSD": mobilenet_ssd,
    "Pelee": pelee,
    "FaceBoxes": faceboxes,
    "DenseNet-121": densenet,
    "DPN": dpn,
    "Xception": xception,
    "ShuffleNet": shufflenet,
    "ShuffleNet 2": shufflenet_2,
    "YOLO 2": yolo_2,
    "SphereFace": sphereface,
}
ROWS: dict[tuple[int, ...], Any] = {
    (1, 1, 3, 8): [
        [0, 1, 0, 0.1, 0.1, 0.4, 0.5, 0],
        [0, 2, 0, 0.5, 0.4, 0.9, 0.9, 0],
        [1, 1, 0, 0.2, 0.3, 0.6, 0.6, 0],
    ],
    (2, 10): [[0, 0.3, 0.3, 0.3, 0.4, 2, 0.7, 0.6, 0.4, 0.5], [1, 0.4, 0.4, 0.4, 0.3, 0, 0, 0, 0, 0]],
    (2,): [2, 0],
}


@pytest.mark.parametrize("name", NETS)
def test_a_small_net_of_the_family_passes_a_gradient_to_all_that_learns(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NETS[name]())
    net = bpt.Net(path, bpt.TRAIN)
    data, label = net.blobs["data"].data, net.blobs["label"].data
    data[...] = np.random.default_rng(3).normal(size=data.shape)
    label[...] = np.reshape(ROWS[label.shape], label.shape)
    net.forward()
    assert 0 < float(net.blobs["loss"].data) < 1000
    net.backward()
    for layer_name, params in net.params.items():
        if not layer_name.startswith("bn_"):
            for index, param in enumerate(params):
                assert np.isfinite(param.diff).all() and param.diff.any(), (layer_name, index)
