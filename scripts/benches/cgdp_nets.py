"""The networks of ``scripts/bench cgdp`` and ``gpu``: those of ``prototxt/``, on generated images of any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bpt.graph.segments import trained_layers
from bpt.plan.resolve import resolve
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource, read_net

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
NETS = ("alexnet", "googlenet", "vgg16", "resnet152")
CHANNELS = {"lenet": 1}
FULL_SIZE = {"lenet": 28, "alexnet": 227, "googlenet": 224, "vgg16": 224, "resnet152": 224}
CLASSES = {"lenet": 10}
RATE = 1e-9  # so low that weights stay what they are: some of the networks are unstable at their start


@dataclass(frozen=True)
class Images:
    """What a rank trains on.

    Attributes:
        size: pixels of an edge of the square images.
        batch: images of a rank in an iteration.
    """

    size: int
    batch: int


# Two ranks of one core each train an iteration of these in about a second or less. Small images leave the convolutions'
# parameters as they are, and take from the first fully connected layer of AlexNet and VGG-16.
SMALL = {
    "lenet": Images(28, 16),
    "alexnet": Images(131, 4),
    "googlenet": Images(64, 4),
    "vgg16": Images(64, 2),
    "resnet152": Images(64, 2),
}
# Just large enough for the poolings on the way: for dry runs.
TINY = {
    "lenet": Images(28, 2),
    "alexnet": Images(67, 2),
    "googlenet": Images(32, 2),
    "vgg16": Images(32, 2),
    "resnet152": Images(32, 2),
}
# CGDP, Table 1: minibatch size per GPU. LeNet, to try things out, has its own.
PAPER = {
    "lenet": Images(28, 64),
    "alexnet": Images(227, 256),
    "googlenet": Images(224, 64),
    "vgg16": Images(224, 32),
    "resnet152": Images(224, 12),
}


def input_shape(name: str, size: int, batch: int) -> tuple[int, int, int, int]:
    """Of a batch of images of the network ``name``."""
    return batch, CHANNELS.get(name, 3), size, size


def classes(name: str) -> int:
    """How many classes the network ``name`` tells apart."""
    return CLASSES.get(name, 1000)


def trained(name: str, size: int) -> int:
    """How many layers of the network ``name`` have parameters that are trained: those that chunks count."""
    return len(trained_layers(resolve(solver_source(name, size, 1)).train.graph()))


def solver_source(name: str, size: int, batch: int, drawn: bool = False) -> SolverSource:
    """A solver that trains the network ``name`` on generated images; it tests and writes nothing.

    Args:
        size: of the images. If it is not the network's own, its average poolings take the whole map: their windows fit
            that size alone.
        batch: of all ranks together.
        drawn: images are drawn anew for each batch by a DummyData layer, and belong to class 0. Otherwise the caller
            feeds the blobs "data" and "label" (Input).
    """
    net = read_net(PROTOTXT / name / "train_val.prototxt").param
    kept = [layer for layer in net.layer if layer.type not in ("Data", "Accuracy")]
    if size != FULL_SIZE[name]:
        for layer in kept:
            _pool_all(layer)
    shapes = (input_shape(name, size, batch), (batch,))
    source = pb.LayerParameter(name="data", type="DummyData" if drawn else "Input", top=["data", "label"])
    for shape in shapes:
        (source.dummy_data_param if drawn else source.input_param).shape.add(dim=shape)
    if drawn:
        source.dummy_data_param.data_filler.add(type="gaussian", std=1)
        source.dummy_data_param.data_filler.add(type="constant", value=0)
    del net.layer[:]
    net.layer.extend([source, *kept])
    param = pb.SolverParameter(
        net_param=net, base_lr=RATE, lr_policy="fixed", momentum=0.9, weight_decay=0.0005,
        max_iter=10**6, random_seed=1, snapshot_prefix="bench", snapshot_after_train=False,
    )  # fmt: skip
    return SolverSource(param, name, {})


def _pool_all(layer: pb.LayerParameter) -> None:
    pooling = layer.pooling_param
    if layer.type == "Pooling" and pooling.pool == pb.PoolingParameter.AVE and not pooling.global_pooling:
        layer.pooling_param.Clear()
        layer.pooling_param.pool = pb.PoolingParameter.AVE
        layer.pooling_param.global_pooling = True
