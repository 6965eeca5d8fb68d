"""SegmentPlan: all tasks of a segment, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from bpt.graph.layer_graph import LayerNode
from bpt.graph.layer_spec import Shape, count
from bpt.graph.segments import Segment
from bpt.nn.net import Net
from bpt.parallel.task_dag.area_tasks import AreaTasks
from bpt.parallel.task_dag.blob_tasks import Work
from bpt.parallel.task_dag.block_tasks import BlockTasks
from bpt.parallel.task_dag.blocks import TaskBlock, group
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.layer_tasks import LayerTasks
from bpt.parallel.task_dag.moment_tasks import MomentTasks
from bpt.parallel.task_dag.parameter_tasks import gradient_tasks, update_tasks
from bpt.parallel.task_dag.split_strategy import SplitKind, SplitStrategy, choose
from bpt.parallel.task_dag.task_costs import forward_seconds
from bpt.parallel.task_dag.task_dag import TaskDag
from bpt.parallel.task_dag.weight_tasks import FilterTasks, NeuronTasks

BLOCK_TASKS: Mapping[SplitKind, Callable[[TaskBlock, Draft], BlockTasks]] = {
    SplitKind.WHOLE: LayerTasks,
    SplitKind.SAMPLES: LayerTasks,
    SplitKind.AREAS: AreaTasks,
    SplitKind.NEURONS: NeuronTasks,
    SplitKind.MOMENTS: MomentTasks,
    SplitKind.FILTERS: FilterTasks,
}
SIDE_BY_SIDE = 1.05  # a DAG with less work than this over its critical path has nothing for a second thread


@dataclass(frozen=True)
class SegmentPlan:
    """The tasks of a segment, for all passes with blobs of the same shapes.

    Attributes:
        forward, backward: the tasks of each direction.
        updating: the tasks of backward, followed by those that update the parameters.
        both: the tasks of forward and of updating in one DAG, in which a task of backward waits only for the tasks of
            forward that it needs (BPT-CNN, section 4.2); ``None`` where layers call collectives, in a fixed order.
        both_without_update: the tasks of ``both`` that do not update.
        forward_works, backward_works: the function of each task.
        parameters: the trained ones, by the index of the Param that owns them.
        blocks: the layers as they are split, in order.
    """

    forward: TaskDag
    forward_works: tuple[Work, ...]
    backward: TaskDag
    updating: TaskDag
    both: TaskDag | None
    both_without_update: TaskDag | None
    backward_works: tuple[Work, ...]
    parameters: Mapping[int, nn.Parameter]
    blocks: tuple[TaskBlock, ...]

    @property
    def is_parallel(self) -> bool:
        """Whether some tasks can run at the same time."""
        work = self.forward.work
        return work > SIDE_BY_SIDE * self.forward.critical_path()[0] and len(self.forward) > 1


def make_plan(net: Net, segment: Segment, threads: int, grain: float) -> SegmentPlan:
    """Decompose a segment for so many threads, into tasks of at least ``grain`` seconds."""
    nodes = [
        node
        for node in net.graph.nodes[segment.start : segment.end]
        if node.type != "Input" and (node.bottoms or not net.sources_apart)
    ]
    strategies, seconds = _strategies(net, nodes, threads, grain)
    alone = {node.index for node in nodes if _in_half(net, node)}
    blocks = group(net.graph, nodes, strategies, seconds, segment.outputs, alone)
    given = {edge for block in blocks for edge in block.bottoms} - {edge for block in blocks for edge in block.tops}
    forward = Draft(net, segment, threads, grain)
    for edge in given:
        forward.values.note(edge, [])
    makers: dict[int, range] = {}  # by block
    for block in blocks:
        begin = len(forward.tasks.tasks)
        BLOCK_TASKS[block.strategy.kind](block, forward).forward()
        makers[block.index] = range(begin, len(forward.tasks.tasks))
    wholes = {edge: forward.values.whole(edge) for edge in segment.outputs if edge in forward.values}
    backward = Draft(net, segment, threads, grain, "backward pass, ")
    readers: dict[int, list[int]] = {}
    after: list[list[int]] = []  # of each task of backward: those of forward that it needs
    for block in reversed(blocks):
        if block.needs_backward:
            begin = len(backward.tasks.tasks)
            BLOCK_TASKS[block.strategy.kind](block, backward).backward()
            needs = [*makers[block.index], *(task for edge in block.tops for task in wholes.get(edge, ()))]
            after += [needs] * (len(backward.tasks.tasks) - begin)
            for owner in {net.graph.params[index].owner for node in block.nodes for index in node.params}:
                readers.setdefault(owner, []).extend(range(begin, len(backward.tasks.tasks)))
    for edge in given:
        if edge in backward.diffs:
            backward.diffs.whole(edge)
    complete = gradient_tasks(backward)
    gradients = backward.dag()
    update_tasks(backward, complete, readers)
    updating = backward.dag()
    after += [[]] * (len(gradients) - len(after))
    # Weights must not change while a branch without a backward pass computes by them.
    beside = [block for block in blocks if not block.needs_backward and _uses(net, block, backward.parameters)]
    after += [[task for block in beside for task in makers[block.index]]] * (len(updating) - len(gradients))
    joins = not any(task.pinned for task in gradients.tasks)
    return SegmentPlan(
        forward=forward.dag(),
        forward_works=tuple(forward.tasks.works),
        backward=gradients,
        updating=updating,
        both=_joined(forward.dag(), updating, after) if joins else None,
        both_without_update=_joined(forward.dag(), gradients, after) if joins else None,
        backward_works=tuple(backward.tasks.works),
        parameters=backward.parameters,
        blocks=tuple(blocks),
    )


def _joined(forward: TaskDag, backward: TaskDag, after: Sequence[Sequence[int]]) -> TaskDag:
    """Return the tasks of ``forward``, followed by those of ``backward``, which depend on them.

    Args:
        after: the tasks of ``forward`` that each task of ``backward`` needs.
    """
    first = len(forward)
    behind = (
        replace(task, needs=tuple(sorted({*after[index], *(first + need for need in task.needs)})))
        for index, task in enumerate(backward.tasks)
    )
    return TaskDag((*forward.tasks, *behind))


def _uses(net: Net, block: TaskBlock, parameters: Mapping[int, nn.Parameter]) -> bool:
    return any(net.graph.params[index].owner in parameters for node in block.nodes for index in node.params)


def batches(net: Net) -> tuple[tuple[int, int], ...]:
    """Return the numbers of samples that layers without bottoms hand out: in the whole batch, and to this rank."""
    edges = [net.graph.edges[edge] for node in net.graph.nodes if not node.bottoms for edge in node.tops]
    wholes = sorted({edge.shape[0] for edge in edges if edge.shape})
    return tuple((whole, net.context.own_shape((whole,))[0]) for whole in wholes)


def _own_shapes(net: Net) -> dict[int, Shape]:
    """Return the shapes of this rank's blobs, by edge."""
    own = dict(batches(net))
    return {
        edge.index: (own.get(edge.shape[0], edge.shape[0]), *edge.shape[1:]) if edge.shape else ()
        for edge in net.graph.edges
    }


def _in_half(net: Net, node: LayerNode) -> bool:
    """Return whether the layer computes in half precision, or has its bottoms cast from it."""
    return net.precision.in_half.layers[node.index] or any(net.precision.in_half.edges[edge] for edge in node.bottoms)


def _strategies(
    net: Net, nodes: list[LayerNode], threads: int, grain: float
) -> tuple[dict[int, SplitStrategy], dict[int, float]]:
    """Return how each layer is split, and what its forward may take on one core, by layer."""
    graph = net.graph
    shapes = _own_shapes(net)
    maker: dict[int, SplitStrategy] = {}
    strategies, seconds = {}, {}
    for node in nodes:
        whole = graph.edges[(*node.bottoms, *node.tops)[0]].shape
        own = shapes[(*node.bottoms, *node.tops)[0]]
        parameters = sum(count(graph.params[index].shape) for index in node.params)
        share = own[0] / whole[0] if whole and whole[0] else 1.0
        seconds[node.index] = forward_seconds(node, shapes, parameters, share)
        before = [maker[edge] for edge in node.bottoms if edge in maker]
        strategy = choose(node, net.layer(node), shapes, before, seconds[node.index], threads, grain)
        if strategy.kind not in (SplitKind.WHOLE, SplitKind.SAMPLES) and _in_half(net, node):
            strategy = SplitStrategy()  # others go by the run's own numbers
        strategies[node.index] = strategy
        maker.update(dict.fromkeys(node.tops, strategy))
    return strategies, seconds
