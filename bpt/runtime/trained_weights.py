"""The trained weights of a net that is only run: weights of another net are refused, not scored."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.errors import FileError
from bpt.net import Net
from bpt.plan.digest import file_fact
from bpt.runtime.agreement import check_same
from bpt.state import load_weights, weight_files


def load_trained(net: Net, weights: Sequence[str], model: str, world: Communicator | None = None) -> set[str]:
    """Load the files ``weights`` into the net of the text ``model``; the names of their layers.

    Args:
        world: the ranks that have parts of the net or of its data; by default this one is alone.

    Raises:
        FileError: a file is none of weights, or does not fit; or no layer of any file is one of the net's, though both
            have parameters.
        UserError: ranks have different files of one name.
    """
    world = world or SerialCommunicator()
    files = weight_files(weights)
    trained: set[str] = set()
    for path in files:
        if world.size > 1:
            check_same(world, {f"the weights {os.path.basename(path)}": file_fact(path)})
        trained |= load_weights(net, path)
    wanted = [node.name for node in net.graph.nodes if node.params]
    if files and wanted and not trained.intersection(wanted):
        raise FileError(
            ", ".join(files),
            f"weights of another net: no layer is one of those with parameters in {model} ({_some(wanted)})",
        )
    return trained


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
