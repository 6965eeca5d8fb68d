"""Loads trained weights into a net for use, and refuses the weights of another net."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from bpt.base.errors import FileError
from bpt.base.file_digest import file_fact
from bpt.graph.layer_graph import Edge
from bpt.nn.net import Net
from bpt.system.comm.agreement import check_same
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.state import MissingWeights, WeightCoverage, load_to_run, weight_files

REMEDIES = {
    MissingWeights.WARN: "",
    MissingWeights.REFUSE_RANDOM: ", or give --allow-random",
    MissingWeights.REFUSE: ", or leave --strict out",
}
"""The end of a message: the flag that accepts layers which are in none of the weights."""


def load_trained(
    net: Net,
    weights: Sequence[str],
    model: str,
    world: Communicator | None = None,
    *,
    missing: MissingWeights = MissingWeights.WARN,
    asked: Iterable[Edge] = (),
) -> set[str]:
    """Load the files ``weights`` into the net of the text ``model``, and return the names of their layers.

    bpt warns of a layer with parameters that is in none of the files.

    Args:
        world: the ranks with parts of the net or of its data; by default this rank is alone.
        missing: the further treatment of such a layer.
        asked: the requested outputs (see WeightCoverage.check).

    Raises:
        FileError: a file is not a file of weights, or does not fit; or the files and the net have no layer with
            parameters in common; or a layer's weights are missing, and that is refused.
        UserError: ranks have different files of one name.
    """
    world = world or SerialCommunicator()
    files = weight_files(weights)
    coverage = WeightCoverage(net.graph)
    for path in files:
        if world.size > 1:
            check_same(world, {f"the weights {os.path.basename(path)}": file_fact(path)})
        coverage = load_to_run(net, path, coverage)
    wanted = [node.name for node in net.graph.nodes if node.params]
    if files and wanted and not coverage.names.intersection(wanted):
        raise FileError(
            ", ".join(files),
            f"weights of another net: no layer is one of those with parameters in {model} ({_some(wanted)})",
        )
    coverage.check(missing if files else MissingWeights.WARN, asked, REMEDIES[missing])
    return coverage.names


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
