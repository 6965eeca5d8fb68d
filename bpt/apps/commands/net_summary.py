"""What ``tools/net_summary.py`` does: the layers of a network file, with what they cost."""

from __future__ import annotations

from bpt.apps.draw.layer_table import Summary, summary_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.nn.net_file import read_net_file


def summarize(
    model: str, phase: str = "TRAIN", *, batch: int = 0, shape: Shape = (), level: int = 0, stages: tuple[str, ...] = ()
) -> tuple[Summary, tuple[str, ...]]:
    """Return the summary of the net ``model`` in a phase, and what had to be assumed for it.

    Args:
        batch: samples of a batch; 0: as many as the text says.
        shape: of a sample, to do without the data; (): that of the data or, if they are not here, after the text.

    Raises:
        UserError: the text is wrong, or the shape of a sample cannot be known.
    """
    net = read_net_file(model, pb.Phase.Value(phase), level, stages, shape=shape, batch=batch)
    assert net.graph is not None, "read_net_file refuses what has no shapes"
    return summary_of(net.graph, {spec.name: spec.type for _, spec in net.layers}), net.notes
