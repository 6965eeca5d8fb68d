"""CutNet: what the search for chunks must know of the ranks, and how it cuts the training net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bpt.config.plan.run_plan import ParallelSpec
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.nn.net import Net
from bpt.parallel.exchange import Bucket
from bpt.system.comm.grid import ProcessGrid


class CutNet(Protocol):
    """Cuts a net into segments for the exchange, and groups the parameters of each."""

    param: ParallelSpec
    grid: ProcessGrid

    @property
    def is_alone(self) -> bool:
        """Whether there is only one rank."""

    def segments(self, graph: LayerGraph, overlap: bool = False, chunks: Sequence[int] = ()) -> tuple[Segment, ...]:
        """Return the segments of a net whose chunks have these numbers of trained layers, from the top down."""

    def groups(self, net: Net, segments: Sequence[Segment]) -> list[list[Bucket]]:
        """Return the parameters of ``net`` whose gradients each of ``segments`` completes."""
