"""The networks of ``scripts/bench hybrid``: those of ``prototxt/`` that mostly compute, on generated images."""

from __future__ import annotations

from typing import Any

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net
from bpt.config.proto.text import to_text
from scripts.benches.harness.launch import PROTOTXT
from scripts.benches.harness.nets import Images, fed_net, solver_param

RATE = 1e-9  # so low that weights stay what they are: some of the networks are unstable at their start

# An iteration on a whole core and a slow one takes a second or more, so that neither the turns of the hosts' quotas
# nor messages decide. Small images leave the convolutions as they are and make the fully connected layers smaller.
IMAGES = {
    "vgg16": Images(32, 32),
    "alexnet": Images(131, 64),
    "resnet20": Images(32, 256),
    "resattnet18_3d": Images(32, 6),
}
VOLUMES = {"resattnet18_3d": "train_val_small"}  # the small one's text
DEFAULT = ("vgg16", "alexnet", "resnet20")


def solver_text(name: str, images: Images) -> str:
    """A solver that trains the network ``name`` and neither tests nor writes anything.

    Images are drawn once: what a data set costs is the same with each placement, and on the first stage.
    """
    fillers = ({"type": "constant", "value": value} for value in (1, 0))
    net = volumes_net(name, images, *fillers) if name in VOLUMES else fed_net(name, "DummyData", images, *fillers)
    return to_text(solver_param(net, RATE, solver_mode="CPU", engine="CHANNELS_LAST"))


def volumes_net(name: str, volumes: Images, *fillers: dict[str, Any]) -> pb.NetParameter:
    """A network for volumes, behind generated ones of as many voxels along each axis as images have pixels."""
    net = read_net(PROTOTXT / name / f"{VOLUMES[name]}.prototxt").param
    source = pb.LayerParameter(name="data", type="DummyData", top=["data", "label"])
    for shape in ((volumes.batch, 1, *(volumes.size,) * 3), (volumes.batch,)):
        source.dummy_data_param.shape.add(dim=shape)
    for filler in fillers:
        source.dummy_data_param.data_filler.add(**filler)
    layers = [layer for layer in net.layer if layer.type not in ("VolumeData", "Accuracy")]
    del net.layer[:]
    net.layer.extend([source, *layers])
    return net
