"""Flat weights of a whole net, and what each stage has of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpt.comm.base import Communicator
from bpt.graph.stages import part_of
from bpt.net import Net
from bpt.server.flat_weights import FlatWeights
from bpt.server.stage_weights import StageWeights
from tests.doubles.seen import Seen
from tests.doubles.thread_ranks import run_ranks
from tests.golden_cases import graph_of
from tests.runtime.parallels import NET

# Layers: data, first, bn, fc, relu, last, fixed, loss. The last stage has no parameters; the first one not only the
# first ones, so that nothing is in order; "bn" and "fixed" are not trained.
STAGES_OF = (0, 1, 0, 0, 1, 2, 1, 3)


def on_stages(comm: Communicator) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], int]:
    """The part of this rank, what it has packed then, what all have together, and bytes sent."""
    graph = graph_of(NET)
    net = Net(graph, part=part_of(graph, STAGES_OF, comm.rank))
    flat = FlatWeights(net)
    weights = StageWeights(flat, comm)
    whole = np.arange(weights.size, dtype=np.float32) if comm.rank == 0 else None
    seen = Seen(comm)
    part = weights.scatter(whole)
    flat.load(part)
    packed = flat.pack()
    together = weights.gather(packed)
    sent = sum(traffic.sent for (label, _), traffic in seen.calls().items() if label == "stages")
    return part, packed, together, sent


def test_parts_are_those_of_the_whole_net() -> None:
    """28 + 9 + 25 + 12 + 6 elements; each blob has the numbers that a net in one piece has at its place."""
    graph = graph_of(NET)
    one = Net(graph)
    FlatWeights(one).load(np.arange(80, dtype=np.float32))
    found = run_ranks(4, on_stages)
    for stage, (part, packed, together, _) in enumerate(found):
        held = [p for p in one.held if STAGES_OF[p.layer] == stage]
        in_order = [p for p in held if one.value(p).requires_grad] + [p for p in held if not one.value(p).requires_grad]
        blobs = [one.value(p).detach().numpy().reshape(-1) for p in in_order]
        np.testing.assert_array_equal(part, np.concatenate(blobs) if blobs else np.zeros(0, np.float32))
        np.testing.assert_array_equal(packed, part)
        np.testing.assert_array_equal(together, np.arange(0 if stage else 80, dtype=np.float32))
    # The leader sends what it does not keep, fc and bn; the others send back what they have.
    assert [sent for *_, sent in found] == [4 * (80 - 34), 4 * 34, 4 * 12, 0]
