"""Flat weights of a whole net, and what each rank of a worker has of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import Part
from bpt.graph.stages import part_of
from bpt.nn.net import Net
from bpt.parallel.model_parallel import model_parallel
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.train.outer.divided_weights import DividedWeights
from bpt.train.outer.flat_weights import FlatWeights
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.parallels import NET

TRANSPOSED = NET.replace("num_output: 5 ", "num_output: 5 transpose: true ")
# Layers: data, first, bn, fc, relu, last, fixed, loss. The last stage has no parameters; the first one not only the
# first ones, so that nothing is in order; "bn" and "fixed" are not trained.
STAGES_OF = (0, 1, 0, 0, 1, 2, 1, 3)


def stages(graph: LayerGraph) -> Sequence[Part]:
    return [part_of(graph, STAGES_OF, stage) for stage in range(4)]


def on_ranks(
    comm: Communicator, stages_of: int, shards: int, parts: Sequence[Part], text: str = NET
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], int]:
    """The part of this rank, what it has packed then, what all have together, and bytes sent."""
    grid = ProcessGrid.make(comm, stages_of, shards)
    net = Net(graph_of(text), part=parts[comm.rank % len(parts)])
    flat = FlatWeights(net)
    weights = DividedWeights(net, flat, grid, parts)
    whole = np.arange(weights.size, dtype=np.float32) if comm.rank == 0 else None
    seen = Seen(comm)
    part = weights.scatter(whole)
    flat.load(part)
    packed = flat.pack()
    together = weights.gather(packed if comm.rank < len(parts) else packed + 1)  # of others nothing counts
    sent = sum(traffic.sent for (label, _), traffic in seen.calls().items() if label == "within a worker")
    return part, packed, together, sent


@pytest.mark.parametrize("replicas", [1, 2])
def test_parts_are_those_of_the_whole_net(replicas: int) -> None:
    """28 + 9 + 25 + 12 + 6 elements; each blob has the numbers that a net in one piece has at its place."""
    graph = graph_of(NET)
    one = Net(graph)
    FlatWeights(one).load(np.arange(80, dtype=np.float32))
    found = run_ranks(4 * replicas, lambda comm: on_ranks(comm, 4, 1, stages(graph)))
    for rank, (part, packed, together, _) in enumerate(found):
        held = [p for p in one.local_params if STAGES_OF[p.layer] == rank % 4]
        in_order = [p for p in held if one.value(p).requires_grad] + [p for p in held if not one.value(p).requires_grad]
        blobs = [one.value(p).detach().numpy().reshape(-1) for p in in_order]
        np.testing.assert_array_equal(part, np.concatenate(blobs) if blobs else np.zeros(0, np.float32))
        np.testing.assert_array_equal(packed, part)
        np.testing.assert_array_equal(together, np.arange(0 if rank else 80, dtype=np.float32))
    # The leader sends what it does not keep, fc and bn; the others send back what they have. Each rank of the first
    # replica tells the second what it has got.
    copies = [4 * elements * (replicas - 1) for elements in (34, 34, 12, 0)]
    own = [4 * (80 - 34), 4 * 34, 4 * 12, 0]
    sent = [sent + copy for sent, copy in zip(own, copies, strict=True)]
    assert [sent for *_, sent in found] == sent + [0] * 4 * (replicas - 1)


@pytest.mark.parametrize("scheme", [pb.FcParameter.PEER, pb.FcParameter.MASTER_SLAVE])
def test_slices_of_either_axis(scheme: int) -> None:
    """A slice of rows or columns is where it is in the blob; what shards hold alike comes back once."""
    graph = graph_of(TRANSPOSED)
    parts = model_parallel.parts(graph, scheme, 2)
    assert {own.axis for own in parts[1].slices.values() if own} == {0, 1}
    one = Net(graph)
    FlatWeights(one).load(np.arange(80, dtype=np.float32))
    found = run_ranks(4, lambda comm: on_ranks(comm, 1, 2, parts, TRANSPOSED))
    for rank, (part, packed, together, _) in enumerate(found):
        mine = parts[rank % 2]
        blobs: dict[bool, list[NDArray[np.float32]]] = {False: [], True: []}
        for param in filter(mine.holds, one.local_params):
            value, own = one.value(param), mine.slice_of(param)
            numbers = value.detach().numpy()
            blobs[not value.requires_grad].append((numbers[own.index(numbers.ndim)] if own else numbers).reshape(-1))
        np.testing.assert_array_equal(part, np.concatenate(blobs[False] + blobs[True]))
        np.testing.assert_array_equal(packed, part)
        np.testing.assert_array_equal(together, np.arange(0 if rank else 80, dtype=np.float32))
