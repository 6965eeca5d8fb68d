"""The networks of ``scripts/bench hybrid``: those of ``prototxt/`` that mostly compute, on generated images."""

from __future__ import annotations

from bpt.proto.text import to_text
from scripts.benches.harness.nets import Images, fed_net, solver_param

RATE = 1e-9  # so low that weights stay what they are: some of the networks are unstable at their start

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
    fillers = ({"type": "constant", "value": value} for value in (1, 0))
    net = fed_net(name, "DummyData", images, *fillers)
    return to_text(solver_param(net, RATE, solver_mode="CPU", engine="CHANNELS_LAST"))
