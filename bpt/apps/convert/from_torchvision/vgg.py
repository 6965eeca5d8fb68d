"""torchvision's VGG networks, with the layer names of the authors' Caffe files.

Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015, configurations A, B,
D and E. Those with BatchNorm are torchvision's own; ``bn1_1`` and ``scale1_1`` normalise ``conv1_1``.
"""

from __future__ import annotations

from bpt.apps.convert.from_torchvision.layer_stack import INPUT, SIDE, LayerStack

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_CHANNELS = (64, 128, 256, 512, 512)
_WIDE = 4096
_CLASSIFIER = ((6, 0), (7, 3))  # number in Caffe's names, and in torchvision's classifier


def build_vgg(depth: int, normalised: bool, classes: int) -> LayerStack:
    """Return VGG-``depth``, with BatchNorm if it is ``normalised``, and a score for each of ``classes``."""
    net = LayerStack(f"VGG_ILSVRC_{depth}_layers{'_bn' if normalised else ''}")
    top = INPUT
    module = 0  # number in torchvision's features, where ReLU and pooling count, too
    for stage, (convolutions, channels) in enumerate(zip(CONVOLUTIONS[depth], _CHANNELS, strict=True), 1):
        for index in range(1, convolutions + 1):
            name = f"{stage}_{index}"
            top = net.convolution(top, f"conv{name}", f"features.{module}", channels, 3, bias=True)
            if normalised:
                net.batch_norm(top, f"bn{name}", f"scale{name}", f"features.{module + 1}")
            net.relu(top, f"relu{name}")
            module += 3 if normalised else 2
        top = net.max_pooling(top, f"pool{stage}", 2, 2)
        module += 1
    places = (SIDE // 2 ** len(_CHANNELS)) ** 2
    for number, module in _CLASSIFIER:
        top = net.inner_product(top, f"fc{number}", f"classifier.{module}", _WIDE, places)
        net.relu(top, f"relu{number}")
        net.dropout(top, f"drop{number}", 0.5)
        places = 1
    net.softmax(net.inner_product(top, "fc8", "classifier.6", classes))
    return net
