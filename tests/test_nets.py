"""Whole networks against the recordings of a real Caffe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bpt.proto import bpt_pb2 as pb
from tests import recorded_nets
from tests.net_cases import RecordedNet, check_structure, read_net, with_inputs

SHAPES = {
    "lenet": (2, 1, 28, 28),
    "cifar10_quick": (2, 3, 32, 32),
    "cifar10_full": (2, 3, 32, 32),
    "alexnet": (2, 3, 227, 227),
    "googlenet": (2, 3, 224, 224),
}
OTHERS: dict[str, Callable[[], pb.NetParameter]] = {
    "small_resnet": recorded_nets.small_resnet,
    "caffenet": recorded_nets.caffenet,
    "cifar10_full_sigmoid_bn": recorded_nets.cifar10_full_sigmoid_bn,
    "mnist_autoencoder": recorded_nets.mnist_autoencoder,
    "mnist_siamese": recorded_nets.mnist_siamese,
}
ALL = [*SHAPES, *OTHERS]
# In a max pooling or ReLU of GoogLeNet two values are equal up to rounding, and Caffe itself decides differently from
# one BLAS to another; so its gradients are less sharp than those of the others.
BLURRED = {"googlenet": {"norm": 1e-2, "sample": 0.15}}


def net_of(name: str, phase: int) -> pb.NetParameter:
    if name in OTHERS:
        return OTHERS[name]()
    return with_inputs(read_net(f"{name}/train_val.prototxt"), phase, {"data": SHAPES[name], "label": (2,)})


@pytest.mark.parametrize("name", ALL)
def test_structure(name: str) -> None:
    check_structure(name, net_of(name, pb.TRAIN))


@pytest.mark.parametrize("name", ALL)
def test_forward_and_backward(name: str) -> None:
    phase = pb.TEST if name in ("alexnet", "caffenet", "googlenet") else pb.TRAIN  # as recorded
    recorded = RecordedNet(name, net_of(name, phase))
    recorded.run()
    recorded.check_forward()
    recorded.check_backward(**BLURRED.get(name, {}))
    recorded.check_statistics()
