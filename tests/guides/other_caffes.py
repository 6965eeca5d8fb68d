"""What people bring along: NVIDIA's weights, VOC's images with a net and weights of SSD's, and a ResNet of PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

import bpt
from bpt.apps.convert.conversion import convert
from tests.support.annotation_files import XML
from tests.support.torchvision_nets import settled

_CONVOLUTION = """
layer { name: "conv1_1" type: "Convolution" bottom: "data" top: "conv1_1"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""
_DEPLOY = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: [1, 3, 16, 16] } } }
"""
_DATA = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label" data_param { source: "trainval_lmdb" batch_size: 1 }
  transform_param { resize_param { height: 16 width: 16 } } }
"""
_LOSS = """
layer { name: "mean" type: "Reduction" bottom: "conv1_1" top: "loss" loss_weight: 1 }
layer { name: "unread" type: "Silence" bottom: "label" }
"""
_SOLVER = 'net: "train.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 2 snapshot_prefix: "ssd"'


def lay_other_caffes(place: Path) -> None:
    """Put them into the folder, by the names that docs/migration.md has for them."""
    (place / "train.prototxt").write_text(_DATA + _CONVOLUTION + _LOSS)
    (place / "solver.prototxt").write_text(_SOLVER)
    (place / "deploy.prototxt").write_text(_DEPLOY + _CONVOLUTION)
    weights = str(place / "VGG_ILSVRC_16_layers_fc_reduced.caffemodel")
    with bpt.Net(place / "deploy.prototxt", bpt.TEST) as net:
        net.save(weights)
    convert(weights, str(place / "nvidia.caffemodel"), "FLOAT16")
    for part in ("JPEGImages", "Annotations"):
        (place / "VOCdevkit" / part).mkdir(parents=True)
    names = ("0", "1", "2")
    for name in names:
        Image.fromarray(np.zeros((20, 40, 3), np.uint8)).save(place / "VOCdevkit" / "JPEGImages" / f"{name}.jpg")
        (place / "VOCdevkit" / "Annotations" / f"{name}.xml").write_text(XML)
    lines = (f"JPEGImages/{name}.jpg Annotations/{name}.xml\n" for name in names)
    (place / "trainval.txt").write_text("".join(lines))
    (place / "labelmap_voc.prototxt").write_text('item { name: "cat" label: 1 } item { name: "18" label: 2 }')


def lay_torchvision(place: Path) -> None:
    """Put a state_dict of random weights, and a picture, into the folder."""
    torch.save(settled("resnet18", 1000, 64).state_dict(), place / "resnet18.pth")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)).save(place / "cat.jpg")
