"""VGG-16."""

from __future__ import annotations

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import IMAGENET, WEIGHT_AND_BIAS, Network, classify, imagenet_solver

STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))  # convolutions, channels
XAVIER = {"type": "xavier"}


def build(n: NetSpec, label: Top | None) -> None:
    top = n.data
    for stage, (convolutions, channels) in enumerate(STAGES, 1):
        for index in range(1, convolutions + 1):
            name = f"{stage}_{index}"
            n[f"conv{name}"] = L.Convolution(
                top, num_output=channels, kernel_size=3, pad=1, weight_filler=XAVIER, param=WEIGHT_AND_BIAS
            )
            top = n[f"relu{name}"] = L.ReLU(n[f"conv{name}"], in_place=True)
        top = n[f"pool{stage}"] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    for index in (6, 7):
        n[f"fc{index}"] = L.InnerProduct(top, num_output=4096, weight_filler=XAVIER, param=WEIGHT_AND_BIAS)
        n[f"relu{index}"] = L.ReLU(n[f"fc{index}"], in_place=True)
        top = n[f"drop{index}"] = L.Dropout(n[f"relu{index}"], dropout_ratio=0.5, in_place=True)
    n.fc8 = L.InnerProduct(top, num_output=1000, weight_filler=XAVIER, param=WEIGHT_AND_BIAS)
    classify(n, n.fc8, label)


ABOUT = """
VGG-16 on ImageNet: thirteen 3x3 convolutions and three fully connected layers.

From Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015,
configuration D, with the layer names of the authors' Caffe files, whose weights fit. 138,357,544 parameters, 31 GFLOP
an image. The authors' weights get 71.5 % of the validation images right, 90.1 % in the first five guesses.

The LMDBs hold colour images of 256x256 pixels. batch_size times iter_size, in the solver, is the paper's 256.
"""

SOLVER = imagenet_solver(
    "vgg16",
    "Trains VGG-16 on ImageNet: 74 epochs of 5,005 batches of 256.",
    """\
    test_interval: 5000

    iter_size: 8          # 8 x 32 = 256 images an update
    base_lr: 0.01
    lr_policy: "step"     # the paper divides by ten, three times, whenever the accuracy stops rising
    gamma: 0.1
    stepsize: 100000
    momentum: 0.9
    weight_decay: 0.0005

    max_iter: 370000
    display: 20
    snapshot: 10000
    """,
)

NETWORKS = [Network("vgg16", "VGG_ILSVRC_16_layers", ABOUT, build, IMAGENET, (32, 25), {"solver.prototxt": SOLVER})]
