"""torchvision's GoogLeNet, with the layer names of Caffe's model zoo.

Szegedy et al., "Going deeper with convolutions", 2015. torchvision's has BatchNorm behind each convolution, 3x3
convolutions in the branch of the 5x5 ones, a fourth pooling of 2x2, and no LRN. Its side classifiers, ``aux1`` and
``aux2``, only matter in training, and are left out.
"""

from __future__ import annotations

from bpt.apps.convert.from_torchvision.layer_stack import INPUT, LayerStack

_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Channels of 1x1, the reduction of 3x3, 3x3, the reduction of 5x5, 5x5 (here 3x3), and the projection of the pool."""
_POOLED = {"3b": ("pool3/3x3_s2", 3), "4e": ("pool4/3x3_s2", 2)}  # after this module: name, side of a window
_EPS = 0.001
SIDE_CLASSIFIERS = ("aux1.", "aux2.")
"""Beginnings of the keys of the side classifiers."""


def build_googlenet(classes: int) -> LayerStack:
    """Return GoogLeNet with a score for each of ``classes``."""
    net = LayerStack("GoogleNet")
    top = _add_convolution(net, INPUT, "conv1/7x7_s2", "conv1", 64, 7, 2)
    top = net.max_pooling(top, "pool1/3x3_s2", 3, 2)
    top = _add_convolution(net, top, "conv2/3x3_reduce", "conv2", 64, 1)
    top = _add_convolution(net, top, "conv2/3x3", "conv3", 192, 3)
    top = net.max_pooling(top, "pool2/3x3_s2", 3, 2)
    for name in _INCEPTIONS:
        top = _add_inception(net, top, name)
        if name in _POOLED:
            pool, kernel = _POOLED[name]
            top = net.max_pooling(top, pool, kernel, 2)
    top = net.global_average(top, "pool5/7x7_s1")
    net.dropout(top, "pool5/drop_7x7_s1", 0.2)
    net.softmax(net.inner_product(top, "loss3/classifier", "fc", classes))
    return net


def _add_inception(net: LayerStack, bottom: str, name: str) -> str:
    """Add four branches side by side, joined along the channels."""
    prefix, module = f"inception_{name}", f"inception{name}"
    ones, reduced_3, threes, reduced_5, fives, projected = _INCEPTIONS[name]
    branches = [_add_convolution(net, bottom, f"{prefix}/1x1", f"{module}.branch1", ones, 1)]
    top = _add_convolution(net, bottom, f"{prefix}/3x3_reduce", f"{module}.branch2.0", reduced_3, 1)
    branches.append(_add_convolution(net, top, f"{prefix}/3x3", f"{module}.branch2.1", threes, 3))
    top = _add_convolution(net, bottom, f"{prefix}/5x5_reduce", f"{module}.branch3.0", reduced_5, 1)
    branches.append(_add_convolution(net, top, f"{prefix}/5x5", f"{module}.branch3.1", fives, 3))
    top = net.max_pooling(bottom, f"{prefix}/pool", 3, 1, pad=1)
    branches.append(_add_convolution(net, top, f"{prefix}/pool_proj", f"{module}.branch4.1", projected, 1))
    return net.concat(f"{prefix}/output", branches)


def _add_convolution(
    net: LayerStack, bottom: str, name: str, module: str, channels: int, kernel: int, stride: int = 1
) -> str:
    """Add a convolution, its normalisation and its ReLU."""
    top = net.convolution(bottom, name, f"{module}.conv", channels, kernel, stride)
    net.batch_norm(top, f"{name}/bn", f"{name}/scale", f"{module}.bn", _EPS)
    prefix, _, last = name.rpartition("/")
    net.relu(top, f"{prefix}/relu_{last.removesuffix('_s2')}")
    return top
