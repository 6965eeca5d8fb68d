"""Small nets in the shapes of those that Caffe's forks are for: each trains, and all that learns gets a gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bpt
from tests.networks.layer_texts import conv, dense
from tests.support.pycaffe_texts import inputs, layer

BOXES = np.array([[0, 0, 0, 15, 15], [0, 8, 4, 31, 20], [1, 3, 3, 9, 30], [1, 0, 8, 31, 31]], np.float32)
PIXELS = {"data": (2, 3, 16, 24), "label": (2, 1, 16, 24)}
TRUNK = conv("c1", "data", 8, "kernel_size: 3 pad: 1 stride: 2") + conv(
    "c2", "c1", 8, "kernel_size: 3 pad: 1 stride: 2"
)
CLASSES = "loss_param { ignore_label: 255 normalization: VALID }"
TARGETS = {"labels": (4,), "targets": (4, 12), "inside": (4, 12), "outside": (4, 12)}
HEADS = layer("SoftmaxWithLoss", "cls labels", "loss_cls") + layer(
    "SmoothL1Loss", "box targets inside outside", "loss_box", "smooth_l1_loss_param { sigma: 1 }"
)
UNPOOLED = "upsample_param { scale: 2 }"
MASKED = "pooling_param { kernel_size: 2 stride: 2 }"
SEGNETS_BN = "bn_param { scale_filler { value: 1 } shift_filler { value: 0.001 } }"
PSPNETS_BN = "bn_param { slope_filler { value: 1 } bias_filler { value: 0 } }"

FAST_RCNN = (
    inputs(data=(2, 3, 32, 32), rois=(4, 5), **TARGETS)
    + TRUNK
    + layer("ROIPooling", "c2 rois", "pool", "roi_pooling_param { pooled_h: 3 pooled_w: 3 spatial_scale: 0.25 }")
    + dense("fc", "pool", 16)
    + dense("cls", "fc", 3)
    + dense("box", "fc", 12)
    + HEADS
)
FASTER_RCNN = (
    inputs(data=(2, 3, 32, 32), im_info=(2, 3), rpn_labels=(2, 1, 24, 8), rpn_targets=(2, 12, 8, 8), labels=(6,))
    + TRUNK
    + conv("rpn", "c2", 8)
    + conv("scores", "rpn", 6, "kernel_size: 1", relu=False)
    + conv("moves", "rpn", 12, "kernel_size: 1", relu=False)
    + layer("Reshape", "scores", "two", "reshape_param { shape { dim: [0, 2, -1, 0] } }")
    + layer("SoftmaxWithLoss", "two rpn_labels", "rpn_loss", "loss_param { ignore_label: -1 normalize: true }")
    + layer("SmoothL1Loss", "moves rpn_targets", "rpn_loss_box")
    + layer("Softmax", "two", "two_prob")
    + layer("Reshape", "two_prob", "prob", "reshape_param { shape { dim: [0, 6, -1, 0] } }")
    + layer(
        "Proposal",
        "prob moves im_info",
        "rois",
        "propagate_down: [false, false, false] proposal_param { feat_stride: 4 base_size: 4 scale: 2 ratio: 0.5 "
        "ratio: 1 ratio: 2 min_size: 4 pre_nms_topn: 60 post_nms_topn: 3 nms_thresh: 0.9 }",
    )
    + layer(
        "ROIAlign",
        "c2 rois",
        "pool",
        "propagate_down: [true, false] roi_align_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.25 }",
    )
    + dense("cls", "pool", 3)
    + layer("SoftmaxWithLoss", "cls labels", "loss_cls")
)
R_FCN = (
    inputs(data=(2, 3, 32, 32), rois=(4, 5), labels=(4,), targets=(4, 8, 1, 1), inside=(4, 8, 1, 1))
    + TRUNK
    + conv("maps", "c2", 12, "kernel_size: 1", relu=False)
    + conv("box_maps", "c2", 32, "kernel_size: 1", relu=False)
    + "".join(
        layer("PSROIPooling", f"{maps} rois", f"ps_{top}", f"psroi_pooling_param {{ {sizes} spatial_scale: 0.25 }}")
        + layer("Pooling", f"ps_{top}", top, "pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
        for maps, top, sizes in (
            ("maps", "cls", "output_dim: 3 group_size: 2"),
            ("box_maps", "box", "output_dim: 8 group_size: 2"),
        )
    )
    + layer("SoftmaxWithLossOHEM", "cls labels", "ohem prob each", "loss_weight: 0 loss_weight: 0 loss_weight: 0")
    + layer("SmoothL1LossOHEM", "box targets inside", "ohem_box each_box", "loss_weight: 0 loss_weight: 0")
    + layer("Eltwise", "each each_box", "both")
    + layer(
        "BoxAnnotatorOHEM",
        "rois both labels inside",
        "hard outside",
        "propagate_down: [false, false, false, false] box_annotator_ohem_param { roi_per_img: 2 }",
    )
    + layer("SoftmaxWithLoss", "cls hard", "loss_cls", "propagate_down: [true, false] loss_param { ignore_label: -1 }")
    + layer("SmoothL1Loss", "box targets inside outside", "loss_box", "propagate_down: [true, false, false, false]")
)
SEGNET = (
    inputs(**PIXELS)
    + conv("c1", "data", 6, relu=False)
    + layer("BN", "c1", "b1", SEGNETS_BN)
    + layer("ReLU", "b1", "b1_r")
    + layer("Pooling", "b1_r", "p1 mask1", MASKED)
    + conv("c2", "p1", 6)
    + layer("Pooling", "c2", "p2 mask2", MASKED)
    + layer("Upsample", "p2 mask2", "u2", UNPOOLED)
    + conv("d2", "u2", 6)
    + layer("Upsample", "d2 mask1", "u1", UNPOOLED)
    + conv("score", "u1", 3, relu=False)
    + layer(
        "SoftmaxWithLoss",
        "score label",
        "loss",
        "loss_param { weight_by_label_freqs: true ignore_label: 255 class_weighting: [0.3, 1, 4] }",
    )
    + layer("SegAccuracy", "score label", "accuracy", "seg_accuracy_param { ignore_label: 255 }")
)
ENET = (
    inputs(**PIXELS)
    + conv("c1", "data", 5, "kernel_size: 3 pad: 1 stride: 2", relu=False)
    + layer("Pooling", "data", "p1", MASKED)
    + layer("Concat", "c1 p1", "first")
    + layer("BN", "first", "b1", SEGNETS_BN)
    + layer("PReLU", "b1", "a1")
    + layer("Pooling", "a1", "p2 mask2", MASKED)
    + conv("left", "p2", 8, "kernel_h: 5 kernel_w: 1 pad_h: 2 pad_w: 0", relu=False)
    + conv("wide", "left", 8, "kernel_h: 1 kernel_w: 5 pad_h: 0 pad_w: 2", relu=False)
    + conv("far", "wide", 8, "kernel_size: 3 pad: 2 dilation: 2")
    + layer("Eltwise", "far p2", "sum")
    + layer("Upsample", "sum mask2", "u2", UNPOOLED)
    + layer(
        "Deconvolution",
        "u2",
        "score",
        'convolution_param { num_output: 3 kernel_size: 2 stride: 2 weight_filler { type: "xavier" } }',
    )
    + layer("SoftmaxWithLoss", "score label", "loss", CLASSES)
)
PSPNET = (
    inputs(data=(2, 3, 17, 25), label=(2, 1, 17, 25))
    + conv("c1", "data", 6, "kernel_size: 3 pad: 1 stride: 2", relu=False)
    + layer("BN", "c1", "b1", PSPNETS_BN)
    + conv("c2", "b1", 6, "kernel_size: 3 pad: 2 dilation: 2")
    + layer("Pooling", "c2", "one", "pooling_param { pool: AVE global_pooling: true }")
    + conv("one_c", "one", 2, "kernel_size: 1")
    + layer("Interp", "one_c", "one_up", "interp_param { height: 9 width: 13 }")
    + layer("Concat", "c2 one_up", "all")
    + conv("score_small", "all", 3, "kernel_size: 1", relu=False)
    + layer("Interp", "score_small", "score", "interp_param { height: 17 width: 25 }")
    + layer("SoftmaxWithLoss", "score label", "loss", CLASSES)
)
C3D = (
    inputs(data=(2, 3, 4, 12, 12), label=(2,))
    + conv("c1", "data", 4)
    + layer("Pooling", "c1", "p1", "pooling_param { kernel_size: 2 stride: 2 }")
    + conv("c2", "p1", 6)
    + layer("Pooling", "c2", "p2", "pooling_param { kernel_size: 2 stride: 2 }")
    + dense("fc", "p2", 3)
    + layer("SoftmaxWithLoss", "fc label", "loss")
)
FLOWNET = (
    inputs(one=(2, 3, 16, 16), other=(2, 3, 16, 16), flow=(2, 2, 16, 16))
    + conv("c1", "one", 4)
    + conv("c2", "other", 4)
    + layer(
        "Correlation", "c1 c2", "corr", "correlation_param { pad: 4 kernel_size: 1 max_displacement: 4 stride_2: 2 }"
    )
    + conv("found", "corr", 2, relu=False)
    + layer("L1Loss", "found flow", "loss", "l1_loss_param { l2_per_location: true }")
)
YOLO_2 = (
    inputs(data=(2, 3, 32, 32), boxes=(2, 10))
    + conv("c1", "data", 6, "kernel_size: 3 pad: 1 stride: 2")
    + conv("c2", "c1", 8, "kernel_size: 3 pad: 1 stride: 2")
    + layer("Pooling", "c2", "p2", "pooling_param { kernel_size: 2 stride: 2 }")
    + conv("c3", "p2", 8)
    + layer("Reorg", "c2", "passed", "reorg_param { stride: 2 }")
    + layer("Concat", "passed c3", "all")
    + conv("found", "all", 16, "kernel_size: 1", relu=False)
    + layer(
        "RegionLoss",
        "found boxes",
        "loss",
        "region_loss_param { side: 4 num_class: 3 coords: 4 num: 2 softmax: 1 rescore: 1 thresh: 0.6 "
        "biases: [1, 1, 2, 3] }",
    )
)
SPHEREFACE = (
    inputs(data=(2, 3, 32, 32), label=(2,))
    + conv("c1", "data", 6, "kernel_size: 3 pad: 1 stride: 2", relu=False)
    + layer("PReLU", "c1", "r1")
    + conv("c2", "r1", 6, relu=False)
    + layer("PReLU", "c2", "r2")
    + layer("Eltwise", "r1 r2", "sum")
    + dense("fc5", "sum", 8)
    + layer(
        "MarginInnerProduct",
        "fc5 label",
        "fc6 lambda",
        "margin_inner_product_param { num_output: 3 type: QUADRUPLE base: 1000 gamma: 0.12 power: 1 lambda_min: 5 "
        'iteration: 0 weight_filler { type: "xavier" } }',
    )
    + layer("SoftmaxWithLoss", "fc6 label", "loss")
)
NETS = {
    "YOLO 2": YOLO_2,
    "SphereFace": SPHEREFACE,
    "Fast R-CNN": FAST_RCNN,
    "Faster R-CNN": FASTER_RCNN,
    "R-FCN": R_FCN,
    "SegNet": SEGNET,
    "ENet": ENET,
    "PSPNet": PSPNET,
    "C3D": C3D,
    "FlowNet": FLOWNET,
}
FIXED = {
    "im_info": np.array([[32, 32, 1]] * 2, np.float32),
    "boxes": np.array([[0, 0.3, 0.3, 0.3, 0.4, 2, 0.7, 0.6, 0.4, 0.5], [1, 0.4, 0.4, 0.4, 0.3, 0, 0, 0, 0, 0]]),
}


def fill(net: bpt.Net) -> None:
    random = np.random.default_rng(3)
    for name in net.inputs:
        data = net.blobs[name].data
        if name == "rois":
            data[...] = BOXES
        elif "label" in name:
            data[...] = random.integers(0, 2 if name.startswith("rpn") else 3, data.shape)
        else:
            data[...] = FIXED.get(name, random.normal(size=data.shape))


@pytest.mark.parametrize("name", NETS)
def test_a_small_net_of_the_family_learns(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NETS[name])
    net = bpt.Net(path, bpt.TRAIN)
    fill(net)
    losses = []
    for _ in range(4):
        net.clear_param_diffs()
        net.forward()
        losses.append(sum(float(net.blobs[top].data.sum()) for top in net.outputs if "loss" in top))
        net.backward()
        for layer_name, params in net.params.items():
            for index, param in enumerate(params):
                if index < 2:  # a BN's statistics do not learn
                    assert np.isfinite(param.diff).all() and param.diff.any(), (layer_name, index)
                param.data[...] -= 0.001 * param.diff
    assert np.isfinite(losses).all()
    if name != "Faster R-CNN":  # its regions move with its weights
        assert min(losses[1:]) < losses[0]
