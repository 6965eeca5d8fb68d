"""GoogLeNet."""

from __future__ import annotations

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import IMAGENET, TEST, WEIGHT_AND_BIAS, Network, imagenet_solver

# Channels of each inception module: 1x1, 3x3 after its reduction, 5x5 after its reduction, projection of the pool.
INCEPTIONS = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}
WEIGHTS = {"weight_filler": {"type": "xavier"}, "param": WEIGHT_AND_BIAS}
BIAS = {"type": "constant", "value": 0.2}


def convolution(n: NetSpec, bottom: Top, prefix: str, name: str, **settings: object) -> Top:
    """A convolution and its ReLU."""
    n[f"{prefix}/{name}"] = L.Convolution(bottom, bias_filler=BIAS, **WEIGHTS, **settings)
    relu: Top = L.ReLU(n[f"{prefix}/{name}"], in_place=True)
    n[f"{prefix}/relu_{name.removesuffix('_s2')}"] = relu
    return relu


def max_pooling(n: NetSpec, bottom: Top, name: str) -> Top:
    pool: Top = L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=3, stride=2)
    n[name] = pool
    return pool


def normalisation(n: NetSpec, bottom: Top, name: str) -> Top:
    norm: Top = L.LRN(bottom, local_size=5, alpha=0.0001, beta=0.75)
    n[name] = norm
    return norm


def inception(n: NetSpec, bottom: Top, name: str) -> Top:
    """Four branches side by side, joined along the channels."""
    prefix = f"inception_{name}"
    narrow, (reduce_3x3, wide_3x3), (reduce_5x5, wide_5x5), projected = INCEPTIONS[name]
    branches = [convolution(n, bottom, prefix, "1x1", num_output=narrow, kernel_size=1)]
    reduced = convolution(n, bottom, prefix, "3x3_reduce", num_output=reduce_3x3, kernel_size=1)
    branches.append(convolution(n, reduced, prefix, "3x3", num_output=wide_3x3, kernel_size=3, pad=1))
    reduced = convolution(n, bottom, prefix, "5x5_reduce", num_output=reduce_5x5, kernel_size=1)
    branches.append(convolution(n, reduced, prefix, "5x5", num_output=wide_5x5, kernel_size=5, pad=2))
    n[f"{prefix}/pool"] = L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=3, stride=1, pad=1)
    branches.append(convolution(n, n[f"{prefix}/pool"], prefix, "pool_proj", num_output=projected, kernel_size=1))
    output: Top = L.Concat(*branches)
    n[f"{prefix}/output"] = output
    return output


def losses(n: NetSpec, score: Top, label: Top, number: int, weight: float) -> None:
    """Loss ``number``, and its accuracies in the first and the first five guesses."""
    prefix = f"loss{number}"
    loss = L.SoftmaxWithLoss(score, label, loss_weight=weight, name=f"{prefix}/loss{number if number == 3 else ''}")
    n[f"{prefix}/loss{number}"] = loss
    n[f"{prefix}/top-1"] = L.Accuracy(score, label, include=TEST)
    n[f"{prefix}/top-5"] = L.Accuracy(score, label, top_k=5, include=TEST)


def side_classifier(n: NetSpec, bottom: Top, label: Top, number: int) -> None:
    """A classifier on a layer in the middle, which keeps gradients alive in training."""
    prefix = f"loss{number}"
    n[f"{prefix}/ave_pool"] = L.Pooling(bottom, pool=P.Pooling.AVE, kernel_size=5, stride=3)
    top = n[f"{prefix}/ave_pool"]
    top = convolution(n, top, prefix, "conv", num_output=128, kernel_size=1)
    n[f"{prefix}/fc"] = L.InnerProduct(top, num_output=1024, bias_filler=BIAS, **WEIGHTS)
    n[f"{prefix}/relu_fc"] = L.ReLU(n[f"{prefix}/fc"], in_place=True)
    n[f"{prefix}/drop_fc"] = L.Dropout(n[f"{prefix}/relu_fc"], dropout_ratio=0.7, in_place=True)
    n[f"{prefix}/classifier"] = L.InnerProduct(n[f"{prefix}/drop_fc"], num_output=1000, **WEIGHTS)
    losses(n, n[f"{prefix}/classifier"], label, number, 0.3)


def build(n: NetSpec, label: Top | None) -> None:
    top = convolution(n, n.data, "conv1", "7x7_s2", num_output=64, kernel_size=7, pad=3, stride=2)
    top = max_pooling(n, top, "pool1/3x3_s2")
    top = normalisation(n, top, "pool1/norm1")
    top = convolution(n, top, "conv2", "3x3_reduce", num_output=64, kernel_size=1)
    top = convolution(n, top, "conv2", "3x3", num_output=192, kernel_size=3, pad=1)
    top = normalisation(n, top, "conv2/norm2")
    top = max_pooling(n, top, "pool2/3x3_s2")
    top = inception(n, top, "3a")
    top = inception(n, top, "3b")
    top = max_pooling(n, top, "pool3/3x3_s2")
    top = inception(n, top, "4a")
    if label is not None:
        side_classifier(n, top, label, 1)
    for name in ("4b", "4c", "4d"):
        top = inception(n, top, name)
    if label is not None:
        side_classifier(n, top, label, 2)
    top = inception(n, top, "4e")
    top = max_pooling(n, top, "pool4/3x3_s2")
    top = inception(n, top, "5a")
    top = inception(n, top, "5b")
    n["pool5/7x7_s1"] = L.Pooling(top, pool=P.Pooling.AVE, kernel_size=7, stride=1)
    n["pool5/drop_7x7_s1"] = L.Dropout(n["pool5/7x7_s1"], dropout_ratio=0.4, in_place=True)
    n["loss3/classifier"] = L.InnerProduct(n["pool5/drop_7x7_s1"], num_output=1000, **WEIGHTS)
    if label is None:
        n.prob = L.Softmax(n["loss3/classifier"])
    else:
        losses(n, n["loss3/classifier"], label, 3, 1)


ABOUT = """
GoogLeNet on ImageNet: nine inception modules and, in training, three losses, which count 0.3, 0.3 and 1.

From Szegedy et al., "Going deeper with convolutions", 2015, with the layer names of Caffe's model zoo, whose weights
fit. 13,378,280 parameters, 3.2 GFLOP an image; for use, without the two side losses, 6,998,552. Trained by
solver.prototxt it gets about 68.7 % of the validation images right, 88.9 % in its first five guesses.

The LMDBs hold colour images of 256x256 pixels.
"""

SOLVER = imagenet_solver(
    "googlenet",
    "Trains GoogLeNet on ImageNet: 60 epochs of 40,037 batches of 32.",
    """\
    test_interval: 4000
    test_initialization: false

    base_lr: 0.01
    lr_policy: "poly"     # base_lr * (1 - iter / max_iter) ^ power
    power: 0.5
    momentum: 0.9
    weight_decay: 0.0002

    max_iter: 2400000
    display: 40
    average_loss: 40      # batches are small, so single losses jump
    snapshot: 40000
    """,
)

NETWORKS = [Network("googlenet", "GoogleNet", ABOUT, build, IMAGENET, (32, 25), {"solver.prototxt": SOLVER})]
