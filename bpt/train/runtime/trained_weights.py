"""The trained weights of a net that is only run: weights of another net are refused, not scored."""

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
"""The end of a message: how the command line accepts layers that are in none of the weights."""


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

    A layer with parameters that is in none of the files is a warning.

    Args:
        world: the ranks that have parts of the net or of its data; by default this one is alone.
        missing: what else is done about such a layer.
        asked: what the net is run for; see WeightCoverage.check.

    Raises:
        FileError: a file is none of weights, or does not fit; or no layer of any file is one of the net's, though both
            have parameters; or a layer's weights are missing, and that is refused.
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
