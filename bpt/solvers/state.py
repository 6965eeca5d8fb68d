"""How far each data layer has read: what a snapshot needs so that a resumed run sees the same samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bpt.net import Net
from bpt.proto import bpt_pb2 as pb


def positions(nets: Mapping[str, Net]) -> Iterator[pb.DataPosition]:
    """The position of every data layer of ``nets``."""
    for name, net in nets.items():
        for layer, source in net.data_layers().items():
            yield pb.DataPosition(net=name, layer=layer, samples=source.position)


def restore_positions(state: pb.SolverState, nets: Mapping[str, Net]) -> None:
    """Set data layers to the positions in ``state``.

    Layers that it does not name start at their first sample: a state that Caffe wrote names none, and
    Caffe restarts its data, too.
    """
    saved = {(position.net, position.layer): position.samples for position in state.data_position}
    for name, net in nets.items():
        for layer, source in net.data_layers().items():
            source.position = saved.get((name, layer), 0)
