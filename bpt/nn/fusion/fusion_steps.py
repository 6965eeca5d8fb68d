"""Steps: the layers of a run in order, with layers that can run as one grouped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from torch.nn.modules import module

from bpt.graph.autocast import HalfPrecision
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.fusion.operations import (
    FoldedAffine,
    MaxThenReLU,
    Operation,
    Overwriting,
    PreparedConvolution,
    PreparedProduct,
)
from bpt.nn.layers import Layer
from bpt.nn.layers.activation import ReLU
from bpt.nn.layers.convolution import Convolution
from bpt.nn.layers.eltwise import SUM, Eltwise
from bpt.nn.layers.inner_product import InnerProduct
from bpt.nn.layers.pooling import Pooling

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""The attributes with torch's hooks of a module; with the prefix ``_global``, those of all modules."""


@dataclass(frozen=True)
class FusionStep:
    """One layer, or several, each of which reads the top of the one before.

    Attributes:
        nodes: the layers, in order.
        operation: the operation that runs them as one; ``None`` means that they run one by one.
        others: further edges that layers after the first one read; they are made before the step.
    """

    nodes: tuple[LayerNode, ...]
    operation: Operation | None = None
    others: tuple[int, ...] = ()

    @property
    def bottoms(self) -> tuple[int, ...]:
        """The edges that the operation reads."""
        return self.nodes[0].bottoms + self.others

    @property
    def observed(self) -> bool:
        """Whether a caller has hooks that read blobs which the operation would hide."""
        return any(self._hooks)

    @cached_property
    def _hooks(self) -> tuple[Sized, ...]:
        """Torch's tables of hooks, which fill in place: those of the operation's layers, and of all modules."""
        assert self.operation is not None
        return hook_tables(self.operation.layers)


def hook_tables(layers: Iterable[Layer]) -> tuple[Sized, ...]:
    """Return torch's tables of hooks, which fill in place: those of ``layers``, and of all modules."""
    own = (getattr(layer, kind) for layer in layers for kind in _HOOKS)
    return (*own, *(getattr(module, f"_global{kind}") for kind in _HOOKS))


def one_by_one(graph: LayerGraph, run: range) -> tuple[FusionStep, ...]:
    """Return the layers of a ``run`` without fusion: all blobs are made."""
    return tuple(FusionStep((graph.nodes[index],)) for index in run)


def plan_steps(
    graph: LayerGraph,
    layers: Sequence[Layer],
    run: range,
    keep: Collection[int],
    in_half: HalfPrecision,
    *,
    grad: bool,
    fixed: bool,
) -> tuple[FusionStep, ...]:
    """Return the layers of a ``run``, fused where that leaves the edges of ``keep`` and all diffs unchanged.

    Args:
        layers: the layers of the whole graph; those of the run in their current mode, training or not.
        in_half: the layers that compute in half precision.
        grad: whether a backward pass may follow.
        fixed: whether parameters stay the same while the steps are used.
    """
    return _Planner(graph, layers, run, keep, in_half, grad, fixed).steps()


class _Planner:
    def __init__(
        self,
        graph: LayerGraph,
        layers: Sequence[Layer],
        run: range,
        keep: Collection[int],
        in_half: HalfPrecision,
        grad: bool,
        fixed: bool,
    ) -> None:
        self._graph, self._layers, self._run, self._keep, self._half = graph, layers, run, keep, in_half.layers
        self._grad, self._fixed = grad, fixed and not grad
        self._makers: dict[int, Operation | Layer] = {}  # edge → its maker

    def steps(self) -> tuple[FusionStep, ...]:
        found: list[FusionStep] = []
        done: set[int] = set()
        for index in self._run:
            if index not in done:
                step = self._step(self._graph.nodes[index])
                found.append(step)
                done.update(node.index for node in step.nodes)
                maker = step.operation or self._layers[step.nodes[-1].index]
                self._makers.update(dict.fromkeys(step.nodes[-1].tops, maker))
        return tuple(found)

    def _step(self, node: LayerNode) -> FusionStep:
        rules = (
            self._prepared_convolution,
            self._prepared_product,
            self._folded_affine,
            self._max_then_relu,
            self._overwriting,
        )
        for rule in rules:
            step = rule(node)
            if step is not None:
                return step
        return FusionStep((node,))

    def _prepared_convolution(self, node: LayerNode) -> FusionStep | None:
        head = self._layers[node.index]
        if not self._fixed or not isinstance(head, Convolution) or not head.folds_affine:
            return None
        nodes, affines = self._affines_behind(node)
        total, other = self._sum_behind(nodes[-1], node.index)
        nodes = nodes if total is None else (*nodes, total)
        relu = self._relu_behind(nodes[-1])
        summing = None if total is None else self._layers[total.index]
        assert summing is None or isinstance(summing, Eltwise)
        holders = [layer for edge in other for layer in self._holders(edge, node.index)]
        operation = PreparedConvolution(head, affines, summing, self._relu_at(relu), holders)
        return FusionStep(nodes if relu is None else (*nodes, relu), operation, other)

    def _prepared_product(self, node: LayerNode) -> FusionStep | None:
        head = self._layers[node.index]
        if not self._fixed or not isinstance(head, InnerProduct):
            return None
        relu = self._relu_behind(node)
        return FusionStep((node,) if relu is None else (node, relu), PreparedProduct(head, self._relu_at(relu)))

    def _relu_behind(self, node: LayerNode) -> LayerNode | None:
        """Return the next layer, if it is a plain ReLU."""
        behind = next(self._behind(node), None)
        return behind if behind is not None and self._relu_at(behind) is not None else None

    def _relu_at(self, node: LayerNode | None) -> ReLU | None:
        layer = None if node is None else self._layers[node.index]
        return layer if type(layer) is ReLU and not layer.slope else None

    def _sum_behind(self, node: LayerNode, ready: int) -> tuple[LayerNode | None, tuple[int, ...]]:
        """Return the next layer and its other bottom, if it adds a blob that exists before layer ``ready`` runs."""
        if len(node.tops) != 1 or not self._is_inner(node.tops[0]):
            return None, ()
        consumer = self._graph.edges[node.tops[0]].consumer
        assert consumer is not None
        behind, layer = self._graph.nodes[consumer], self._layers[consumer]
        others = tuple(edge for edge in behind.bottoms if edge != node.tops[0])
        adds = isinstance(layer, Eltwise) and layer.operation == SUM and layer.coeffs == [1.0, 1.0]
        casts = self._half[consumer] != self._half[node.index]
        if not adds or casts or self._graph.edges[others[0]].producer >= ready:
            return None, ()
        return behind, others

    def _folded_affine(self, node: LayerNode) -> FusionStep | None:
        head = self._layers[node.index]
        # Without gradients it costs less to scale a top than to scale the filters for every batch.
        if not head.folds_affine or (isinstance(head, Convolution) and not self._grad):
            return None
        nodes, affines = self._affines_behind(node)
        return FusionStep(nodes, FoldedAffine(head, affines)) if affines else None

    def _affines_behind(self, node: LayerNode) -> tuple[tuple[LayerNode, ...], list[Layer]]:
        """Return the layer and the following factors and summands by channel; also only the latter's layers."""
        if len(self._graph.edges[node.tops[0]].shape) < 2:
            return (node,), []
        found = list(takewhile(lambda behind: self._layers[behind.index].channel_affine(), self._behind(node)))
        return (node, *found), [self._layers[each.index] for each in found]

    def _max_then_relu(self, node: LayerNode) -> FusionStep | None:
        relu = self._layers[node.index]
        behind = next(self._behind(node), None)
        if type(relu) is not ReLU or not relu.overwrites or behind is None:
            return None
        pooling = self._layers[behind.index]
        sizes = self._graph.edges[node.tops[0]].shape[2:]
        if not isinstance(pooling, Pooling) or not pooling.is_plain_max(sizes):
            return None
        return FusionStep((node, behind), MaxThenReLU(relu, pooling))

    def _overwriting(self, node: LayerNode) -> FusionStep | None:
        layer = self._layers[node.index]
        for place in layer.overwrites:
            edge = node.bottoms[place]
            maker = self._makers.get(edge)
            if maker is not None and maker.top_is_free and self._is_inner(edge) and self._makes_first(edge):
                makers = maker.layers if not isinstance(maker, Layer) else (maker,)
                return FusionStep((node,), Overwriting(layer, place, makers))
        return None

    def _holders(self, edge: int, ready: int) -> tuple[Layer, ...]:
        """Return the layers that have a blob's memory, if its reader is the last that needs it from layer ``ready`` on.

        This holds for the top of a prepared convolution, and for a copy of it if convolutions have read the others.
        """
        node = self._graph.nodes[self._graph.edges[edge].producer]
        holders: list[Layer] = []
        if node.type == "Split":
            consumers = [self._graph.edges[top].consumer for top in node.tops if top != edge]
            readers = [index for index in consumers if index is not None and index < ready]
            holders = [self._layers[index] for index in (node.index, *readers)]
            convolved = all(isinstance(layer, Convolution) for layer in holders[1:])
            if len(readers) < len(consumers) or not convolved or not all(map(self._is_inner, node.tops)):
                return ()
            (edge,) = node.bottoms
        maker = self._makers.get(edge)
        return (*maker.layers, *holders) if isinstance(maker, PreparedConvolution) and self._is_inner(edge) else ()

    def _behind(self, node: LayerNode) -> Iterator[LayerNode]:
        """Yield the following layers, while each reads one blob, which nobody else sees, and makes one."""
        while len(node.tops) == 1 and self._is_inner(node.tops[0]):
            consumer = self._graph.edges[node.tops[0]].consumer
            assert consumer is not None
            behind = self._graph.nodes[consumer]
            stops_diff = self._grad and behind.bottom_needs_diff[:1] != (node.needs_backward,)
            casts = self._half[behind.index] != self._half[node.index]
            if len(behind.bottoms) != 1 or len(behind.tops) != 1 or stops_diff or casts:
                return
            yield behind
            node = behind

    def _is_inner(self, edge: int) -> bool:
        """Return whether the blob is made and read in this run, and nobody else sees it."""
        info = self._graph.edges[edge]
        return info.consumer in self._run and edge not in self._keep and not info.loss_weight

    def _makes_first(self, edge: int) -> bool:
        """Return whether the blob is the first top of a layer that computes it from bottoms."""
        node = self._graph.nodes[self._graph.edges[edge].producer]
        return bool(node.bottoms) and node.tops[0] == edge
