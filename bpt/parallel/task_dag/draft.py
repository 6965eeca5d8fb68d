"""Draft: the tasks of one pass over a segment, while its blocks add them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from bpt.graph.layer_graph import LayerNode
from bpt.graph.segments import Segment
from bpt.nn.net import Net
from bpt.parallel.task_dag.blob_tasks import BlobTasks, Read, TaskList
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import DagState, Key
from bpt.parallel.task_dag.task_dag import TaskDag


@dataclass(frozen=True)
class Slot:
    """The joint contribution of some tasks to a parameter's gradient: where it is left, and the tasks."""

    key: Key
    tasks: tuple[int, ...]


class Draft:
    """The data that the blocks of a segment need to add their tasks, for one direction.

    Attributes:
        grain: the least seconds that a task should take.
        direction: what errors say before the layers' names.
        values, diffs: the tasks that make each edge's blob and diff.
        wants: edge → whether the layer that reads it must return a diff.
        parameters: the trained ones, by the index of the Param that owns the values.
        added: the tasks that contribute to the gradient of each of them, in the order of the sum.
    """

    def __init__(self, net: Net, segment: Segment, threads: int, grain: float, direction: str = "") -> None:
        self.net = net
        self.segment = segment
        self.threads = threads
        self.grain = grain
        self.direction = direction
        self.tasks = TaskList()
        self.outputs = frozenset(segment.outputs)
        self.values = BlobTasks(self.tasks, lambda run: run.values, self.outputs)
        self.diffs = BlobTasks(self.tasks, lambda run: run.diffs)
        self.wants = {edge.index: self._wants(edge.consumer, edge.index) for edge in net.graph.edges}
        self.parameters: dict[int, nn.Parameter] = {}
        for node in net.graph.nodes[segment.start : segment.end]:
            for index in node.params:
                value = net.value(net.graph.params[index])
                if value.requires_grad:
                    self.parameters[net.graph.params[index].owner] = value
        self.added: dict[int, list[Slot]] = {}
        self._slots = 0
        self._last: dict[int | None, list[int]] = {}  # tasks that must come one after the other, by what they share

    def _wants(self, consumer: int | None, edge: int) -> bool:
        if consumer is None:
            return False
        node = self.net.graph.nodes[consumer]
        return node.needs_backward and node.bottom_needs_diff[node.bottoms.index(edge)]

    def read_diff(self, edge: int, bounds: tuple[int, ...], part: int, alone: bool = True) -> tuple[list[int], Read]:
        """Return the tasks and the reader of a diff: the sum of what the segment's layers and later ones return."""
        needs: list[int] = []
        inner: Read | None = None
        if edge in self.diffs:
            needs, inner = self.diffs.read(edge, bounds, part, alone)
        if edge not in self.outputs:
            return needs, inner or (lambda run: None)

        def both(run: DagState) -> Tensor | None:
            outer = run.start(edge)
            if outer is not None and bounds:
                outer = outer.narrow(0, bounds[part], bounds[part + 1] - bounds[part])
            own = None if inner is None else inner(run)
            if own is None or outer is None:
                return outer if own is None else own
            return own + outer

        return needs, both

    def slots(self, nodes: Sequence[LayerNode]) -> dict[int, Key]:
        """Return where a task leaves its contributions to the gradients of the parameters of ``nodes``, by owner."""
        graph = self.net.graph
        owners = dict.fromkeys(graph.params[index].owner for node in nodes for index in node.params)
        self._slots += 1
        return {owner: (owner, self._slots) for owner in owners if owner in self.parameters}

    def contribute(self, slots: Mapping[int, Key], tasks: Sequence[int]) -> None:
        """Note that ``tasks`` fill these slots."""
        for owner, key in slots.items():
            self.added.setdefault(owner, []).append(Slot(key, tuple(tasks)))

    def order_of(self, block: TaskBlock) -> list[int]:
        """Return the tasks that the block's must follow, though it reads nothing of theirs."""
        return [task for shared in self._shared(block) for task in self._last.get(shared, [])]

    def close(self, block: TaskBlock, made: Sequence[int]) -> None:
        """Note the tasks of a block, for blocks that must follow it."""
        self._last.update((shared, list(made)) for shared in self._shared(block))

    def _shared(self, block: TaskBlock) -> list[int | None]:
        """Return what tasks must not use at once: the calling thread (``None``), and statistics that a pass changes."""
        graph = self.net.graph
        params = [graph.params[index] for node in block.nodes for index in node.params]
        return [*([None] if block.strategy.pinned else []), *(param.owner for param in params if not param.learnable)]

    def dag(self) -> TaskDag:
        return TaskDag(self.tasks.tasks)
