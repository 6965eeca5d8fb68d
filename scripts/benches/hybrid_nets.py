"""The networks of ``scripts/bench hybrid``: those of ``prototxt/`` that mostly compute, on generated images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import read_net
from bpt.proto.text import to_text

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
RATE = 1e-9  # so low that weights stay what they are: some of the networks are unstable at their start


@dataclass(frozen=True)
class Images:
    """What a network trains on.

    Attributes:
        size: pixels of an edge of the square images.
        batch: images of an iteration.
    """

    size: int
    batch: int


# An iteration on a whole core and a slow one takes a second or more, so that neither the turns of the hosts' quotas
# nor messages decide. Small images leave the convolutions as they are and make the fully connected layers smaller.
IMAGES = {
    "vgg16": Images(32, 32),
    "alexnet": Images(131, 64),
    "resnet20": Images(32, 256),
}


def solver_text(name: str, images: Images) -> str:
    """A solver that trains the network ``name`` and neither tests nor writes anything.

    Images are drawn once: what a data set costs is the same with each placement, and on the first stage.
    """
    net = read_net(PROTOTXT / name / "train_val.prototxt").param
    kept = [
        layer
        for layer in net.layer
        if layer.type not in ("Data", "Accuracy") and not any(rule.phase == pb.TEST for rule in layer.include)
    ]
    source = pb.LayerParameter(name="data", type="DummyData", top=["data", "label"])
    source.dummy_data_param.shape.add(dim=(images.batch, 3, images.size, images.size))
    source.dummy_data_param.shape.add(dim=(images.batch,))
    source.dummy_data_param.data_filler.add(type="constant", value=1)
    source.dummy_data_param.data_filler.add(type="constant", value=0)
    del net.layer[:]
    net.layer.extend([source, *kept])
    param = pb.SolverParameter(
        net_param=net, base_lr=RATE, lr_policy="fixed", momentum=0.9, weight_decay=0.0005, max_iter=10**6,
        random_seed=1, snapshot_prefix="bench", snapshot_after_train=False, solver_mode=pb.SolverParameter.CPU,
        engine=pb.SolverParameter.CHANNELS_LAST,
    )  # fmt: skip
    return to_text(param)
