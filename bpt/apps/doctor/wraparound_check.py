"""Check whether tests use samples more than once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bpt.apps.doctor.findings import Finding, Ranks, attempt, warning
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import Part
from bpt.nn.layers import LAYERS, DataLayer
from bpt.nn.net import Net
from bpt.train.runtime.test_wraparound import wraparound_of_test_set


def check_tests(ranks: Ranks, plan: RunPlan, graphs: Mapping[str, LayerGraph]) -> list[Finding]:
    """Return warnings about tests that use samples more than once; rank 0 checks all nets; a collective call."""
    found = attempt(lambda: list(_wraparounds(plan, graphs))).value if ranks.world.rank == 0 else None
    return ranks.world.bcast(found) or []


def _wraparounds(plan: RunPlan, graphs: Mapping[str, LayerGraph]) -> Iterator[Finding]:
    tests = [(name, graph) for name, graph in graphs.items() if graph.phase == pb.TEST]
    if len(tests) != len(plan.test_iter):  # graphs and test_iter cannot be matched
        return
    for (name, graph), batches in zip(tests, plan.test_iter, strict=True):
        data = frozenset(node.index for node in graph.nodes if issubclass(LAYERS[node.type], DataLayer))
        net = Net(graph, part=Part(data))  # only the layers that read data are made
        try:
            text, remedy = wraparound_of_test_set(net, name, batches)
        finally:
            net.close()
        if text:
            yield warning(text, remedy)
