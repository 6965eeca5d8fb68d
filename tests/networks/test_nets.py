"""Whole networks against the recordings of a real Caffe."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from tests.support.marks import slow
from tests.support.net_cases import RecordedNet, check_structure, read_net, with_inputs
from tests.support.recorded_nets import small_resnet

LABELS = {"label": (2,)}
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "lenet": {"data": (2, 1, 28, 28), **LABELS},
    "cifar10_quick": {"data": (2, 3, 32, 32), **LABELS},
    "cifar10_full": {"data": (2, 3, 32, 32), **LABELS},
    "cifar10_full_sigmoid_bn": {"data": (2, 3, 32, 32), **LABELS},
    "alexnet": {"data": (2, 3, 227, 227), **LABELS},
    "caffenet": {"data": (2, 3, 227, 227), **LABELS},
    "googlenet": {"data": (2, 3, 224, 224), **LABELS},
    "mnist_autoencoder": {"data": (2, 1, 28, 28)},
    "mnist_siamese": {"pair_data": (2, 2, 28, 28), "sim": (2,)},
}
ALL = [*SHAPES, "small_resnet"]
# In a max pooling or ReLU of GoogLeNet two values are equal up to rounding, and Caffe itself decides differently from
# one BLAS to another; so its gradients are less sharp than those of the others.
BLURRED = {"googlenet": {"norm": 1e-2, "sample": 0.15}}


def net_of(name: str, phase: int) -> pb.NetParameter:
    if name == "small_resnet":
        return small_resnet()
    return with_inputs(read_net(f"{name}/train_val.prototxt"), phase, SHAPES[name])


@pytest.mark.parametrize("name", ALL)
def test_structure(name: str) -> None:
    check_structure(name, net_of(name, pb.TRAIN))


@pytest.mark.parametrize("name", [slow(name) if name in ("alexnet", "caffenet") else name for name in ALL])
def test_forward_and_backward(name: str) -> None:
    phase = pb.TEST if name in ("alexnet", "caffenet", "googlenet") else pb.TRAIN  # as recorded
    recorded = RecordedNet(name, net_of(name, phase))
    recorded.run()
    recorded.check_forward()
    recorded.check_backward(**BLURRED.get(name, {}))
    recorded.check_statistics()
