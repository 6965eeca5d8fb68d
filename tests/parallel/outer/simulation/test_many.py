"""Ten thousand nodes."""

from __future__ import annotations

import pytest

from bpt.parallel.cluster.cluster import Node, ServerNode
from bpt.parallel.outer.simulation.simulator import SimulatedJob
from tests.parallel.outer.simulation.clusters import play

NODES, SAMPLES = 10_000, 40


@pytest.mark.slow
@pytest.mark.parametrize("batches", [0, 3], ids=["UDPA", "IDPA"])
@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_ten_thousand_nodes(exchange: str, batches: int) -> None:
    """Half of them twice as fast as the others, on links that cost nothing: 40 samples each, trained three times."""
    nodes = [Node("fast" if number % 2 else "slow", 2.0 if number % 2 else 1.0) for number in range(NODES)]
    found = play(exchange, nodes, SAMPLES * NODES, 3, batches, ServerNode(), SimulatedJob(batch=10, weights=200))
    assert sum(node.samples for node in found.nodes) == SAMPLES * NODES
    if batches:  # whole batches, so that a pass is an iteration longer at most
        ideal = 3 * SAMPLES * NODES / (1.5 * NODES)
        assert ideal <= found.seconds <= ideal + 5 * 10
    else:
        assert found.seconds == pytest.approx(3 * SAMPLES)
