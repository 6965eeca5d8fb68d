"""BatchNorm layers that say of each of their three blobs how it is trained, which Caffe ignores now."""

from __future__ import annotations

from bpt.proto import bpt_pb2 as pb

_BLOBS = 3


def upgrade(net: pb.NetParameter) -> list[int]:
    """Sets ``lr_mult`` and ``decay_mult`` of BatchNorm layers with three ``param`` to 0.

    Returns the numbers of the layers that were changed.
    """
    changed = []
    for index, layer in enumerate(net.layer):
        if layer.type != "BatchNorm" or len(layer.param) != _BLOBS:
            continue
        if all(param.lr_mult == 0 == param.decay_mult for param in layer.param):
            continue
        for param in layer.param:
            param.lr_mult = param.decay_mult = 0
        changed.append(index)
    return changed
