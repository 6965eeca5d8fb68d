"""Summarize a network file, for ``bpt summary`` and ``tools/net_summary.py``: its layers and their costs."""

from __future__ import annotations

from bpt.apps.draw.layer_table import Summary, summary_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.nn.net_file import read_net_file


def summarize(
    model: str, phase: str = "TRAIN", *, batch: int = 0, shape: Shape = (), level: int = 0, stages: tuple[str, ...] = ()
) -> tuple[Summary, tuple[str, ...]]:
    """Return the summary of the net ``model`` in a phase, and notes about assumptions.

    Args:
        model: the network's text file.
        phase: TRAIN or TEST.
        batch: samples of a batch; 0: as in the text.
        shape: the shape of a sample; (): that of the data or, without the data, of the text.
        level: the network's level.
        stages: the network's stages.

    Raises:
        UserError: the text is wrong, or the shape of a sample is unknown.
    """
    net = read_net_file(model, pb.Phase.Value(phase), level, stages, shape=shape, batch=batch)
    assert net.graph is not None, "read_net_file refuses nets without shapes"
    return summary_of(net.graph, {spec.name: spec.type for _, spec in net.layers}), net.notes
