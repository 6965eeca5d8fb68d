"""torchvision's AlexNet, with the layer names of Caffe's.

Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: unlike the AlexNet of 2012 it has
64 filters in the first layer, no groups and no LRN.
"""

from __future__ import annotations

from bpt.apps.convert.from_torchvision.layer_stack import INPUT, LayerStack

_PLACES = 6 * 6  # of the last pooling
_WIDE = 4096


def build_alexnet(classes: int) -> LayerStack:
    """Return AlexNet with a score for each of ``classes``."""
    net = LayerStack("AlexNet")
    top = net.convolution(INPUT, "conv1", "features.0", 64, 11, stride=4, pad=2, bias=True)
    net.relu(top, "relu1")
    top = net.max_pooling(top, "pool1", 3, 2)
    top = net.convolution(top, "conv2", "features.3", 192, 5, bias=True)
    net.relu(top, "relu2")
    top = net.max_pooling(top, "pool2", 3, 2)
    for number, module, channels in ((3, 6, 384), (4, 8, 256), (5, 10, 256)):
        top = net.convolution(top, f"conv{number}", f"features.{module}", channels, 3, bias=True)
        net.relu(top, f"relu{number}")
    top = net.max_pooling(top, "pool5", 3, 2)
    net.dropout(top, "drop5", 0.5)  # torchvision drops out before fc6 and fc7, Caffe's AlexNet behind them
    top = net.inner_product(top, "fc6", "classifier.1", _WIDE, _PLACES)
    net.relu(top, "relu6")
    net.dropout(top, "drop6", 0.5)
    top = net.inner_product(top, "fc7", "classifier.4", _WIDE)
    net.relu(top, "relu7")
    net.softmax(net.inner_product(top, "fc8", "classifier.6", classes))
    return net
