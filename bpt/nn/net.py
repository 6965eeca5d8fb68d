"""Net: a torch.nn.Module made from a LayerGraph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from bpt.base.errors import BptError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode, Param
from bpt.graph.part import WHOLE, Part
from bpt.graph.share import ShardRotation
from bpt.nn.fusion.fixed_steps import FixedSteps
from bpt.nn.fusion.fusion_steps import FusionStep, one_by_one
from bpt.nn.fusion.operations import Operation
from bpt.nn.fusion.step_plans import StepPlans
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers import LAYERS, DataLayer, Layer
from bpt.nn.layers.filter import behind_filters, refit
from bpt.nn.layers.layer_text import blobs_in_text, notice_unused_settings
from bpt.nn.mixed_precision import MixedPrecision
from bpt.nn.parameter_maker import ParameterMaker
from bpt.nn.pass_context import CurrentPass, PassContext
from bpt.system.device.torch_errors import kernel_error

_AS_IT_IS = nullcontext()


class Net(nn.Module):
    """The layers of a graph with their parameters, ready to run.

    Called with one tensor for each of ``graph.inputs`` it returns ``graph.outputs`` (a tensor if there
    is one, else a tuple), like any module of the PyTorch world.

    Args:
        graph: what to build.
        context: seed and clock of the run; fillers draw from it.
        shared: parameters to use instead of own ones, by (layer name, blob index): a test net uses its
            train net's (Caffe: ``ShareTrainedLayersWith``). Shapes must be equal.
        part: what this rank holds. Other layers are not made: they read no data and have no parameters. Slices of
            parameters have the values that they have in the whole, which is never allocated.
        filled: whether parameters get values by their fillers; if not, the caller must set them all.

    Attributes:
        local_params: the parameters of ``graph.learnable`` that this rank holds, whole or a slice, in the same order.
        sources_apart: layers without bottoms run by ``draw``, and ``run`` leaves them out. The samples that they make
            at once go through the other layers in micro-batches, some of them on other ranks.
        precision: which layers and blobs are in half precision.

    Raises:
        LayerError: a filler, or values in the text, do not fit a parameter, or a shared one has another shape or is
            not on this rank.
        RunError: no memory for a parameter.
    """

    def __init__(
        self,
        graph: LayerGraph,
        context: PassContext | None = None,
        shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
        part: Part = WHOLE,
        filled: bool = True,
    ) -> None:
        super().__init__()
        self.graph = graph
        self.part = part
        self.local_params = tuple(param for param in graph.learnable if part.holds(param))
        self._pass = CurrentPass(context or PassContext())
        self.sources_apart = False
        self.layers = nn.ModuleList()
        self.precision = MixedPrecision(graph, self.context.precision)
        self._plans = StepPlans()
        maker = ParameterMaker(graph, part, self.context, shared or {}, filled)
        for node in graph.nodes:
            if not part.runs(node.index):
                self.layers.append(RemoteLayer(node.spec, self.context))
                continue
            layer = LAYERS[node.type](node.spec, self.context)
            layer.follow(self._pass)
            notice_unused_settings(layer)
            layer.samples = _samples(graph, node)
            layer.set_up([graph.edges[edge].shape for edge in node.bottoms])
            stated = blobs_in_text(node.spec, [graph.params[index].shape for index in node.params])
            for index in node.params:
                param = graph.params[index]
                layer.add_blob(maker.make(param, stated), part.shape_of(param))
            self.layers.append(layer)
        self._ordered = tuple(layer for layer in self.layers if isinstance(layer, Layer))  # looked up in every pass
        self._values = maker.values
        self._behind_filters = behind_filters(graph)
        self.training = graph.phase == pb.TRAIN  # a layer with a phase of its own keeps that
        rotates = self.context.rotates and self.training
        self._rotates_by = _agree_on_rotation(self.layers) if rotates else None

    @property
    def context(self) -> PassContext:
        """The context of the pass under way, or of the last one."""
        return self._pass.context

    def enter(self, context: PassContext) -> None:
        """Let all layers see the context of another pass, or of another micro-batch, from now on."""
        self._pass.context = context

    def next_rotation(self) -> float:
        """Return the part of the batch by which the shares of the next pass are rotated; 0 if they never are."""
        if self._rotates_by is None:
            return 0.0
        rotation, layer = self._rotates_by
        return rotation.part(layer.position // layer.share.total)

    def holds(self, param: Param) -> bool:
        """Return whether this rank holds a parameter blob of this net's graph, whole or a slice."""
        return self.part.holds(param)

    def value(self, param: Param) -> nn.Parameter:
        """Return the values (and ``.grad``) of a parameter blob of this net's graph that this rank holds."""
        return self._values[param.index]

    def values_by_name(self) -> dict[tuple[str, int], nn.Parameter]:
        """Return the parameters that this rank holds by (layer name, blob index), for another net to share."""
        params = self.graph.params
        return {
            (self.graph.nodes[params[index].layer].name, params[index].blob): value
            for index, value in self._values.items()
        }

    def layer(self, node: LayerNode) -> Layer:
        return self._ordered[node.index]

    @property
    def hidden_states(self) -> tuple[tuple[Tensor, ...], ...]:
        """The hidden state of each layer; may be set."""
        return tuple(self.layer(node).hidden_state for node in self.graph.nodes)

    @hidden_states.setter
    def hidden_states(self, states: Sequence[tuple[Tensor, ...]]) -> None:
        for node, state in zip(self.graph.nodes, states, strict=True):
            self.layer(node).hidden_state = state

    def data_layers(self) -> dict[str, DataLayer]:
        """Return the layers that read a data set, by name."""
        return {l.spec.name: l for l in self.layers if isinstance(l, DataLayer)}

    def close(self) -> None:
        """Stop reading ahead, close all data sources, and complete the files that layers write."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.close()

    def reshape(self, graph: LayerGraph) -> None:
        """Replace the graph by one with the same layers and parameters and other blob shapes."""
        for old, new in zip(self.graph.params, graph.params, strict=True):
            if old.shape != new.shape:
                raise graph.nodes[new.layer].spec.error(
                    f"the new input shape would change parameter {new.blob} from {old.shape} to {new.shape}"
                )
        self.graph = graph
        self.local_params = tuple(param for param in graph.learnable if self.holds(param))
        for node in graph.nodes:
            self.layer(node).samples = _samples(graph, node)

    def run(
        self,
        start: int,
        end: int,
        values: dict[int, Tensor],
        keep: Collection[int] | None = None,
        place: Callable[[Tensor], Tensor] = lambda tensor: tensor,
        steps: Sequence[FusionStep] | None = None,
    ) -> None:
        """Run layers ``[start, end)`` forward.

        Args:
            values: edge index → tensor; must hold what these layers read, and receives what they write.
            keep: edges that stay in ``values`` though a layer of the run has read them, so that they can
                be looked at; ``None`` keeps all. Others are dropped at once, to give memory back.
            place: puts what a layer without bottoms makes on the right device and in the right layout.
            steps: the layers as a caller has planned them; by default the best plan for ``keep``.
        """
        planned = self.steps(range(start, end), keep) if steps is None else steps
        if isinstance(planned, FixedSteps) and not self.precision.casts:
            planned.run(values, lambda: self._run_steps(planned, values, keep, place))
        else:
            self._run_steps(planned, values, keep, place)

    def _run_steps(
        self,
        steps: Sequence[FusionStep],
        values: dict[int, Tensor],
        keep: Collection[int] | None,
        place: Callable[[Tensor], Tensor],
    ) -> None:
        for step in steps:
            node = step.nodes[0]
            if node.type == "Input" or (self.sources_apart and not node.bottoms):
                continue  # the caller has set its tops
            if step.operation is not None and not step.observed and self._run_as_one(step, step.operation, values):
                _drop(step.bottoms, values, keep)
                continue
            for each in step.nodes:
                self._run_layer(each, values, place)
                _drop(each.bottoms, values, keep)

    def steps(self, run: range, keep: Collection[int] | None) -> Sequence[FusionStep]:
        """Return the layers of a ``run`` in the order in which they run, fused where nobody wants the blobs between."""
        if keep is None or self._behind_filters or is_compiling_or_tracing():  # a compiler fuses by itself
            return one_by_one(self.graph, run)
        return self._plans.steps(self.graph, self._ordered, run, keep, self.precision.in_half)

    def fixed_parameters(self) -> AbstractContextManager[None]:
        """Return a scope in which no parameter changes, so that passes without gradients are faster (StepPlans)."""
        return self._plans.fixed_parameters()

    def bottoms(self, node: LayerNode, values: Mapping[int, Tensor]) -> list[Tensor]:
        """Return what a layer reads, in the numbers that it computes in, so that diffs flow where they are wanted."""
        if torch.is_grad_enabled():
            bottoms = [
                values[edge] if wanted else values[edge].detach()
                for edge, wanted in zip(node.bottoms, node.bottom_needs_diff, strict=True)
            ]
        else:
            bottoms = [values[edge] for edge in node.bottoms]
        if not self.precision.casts:
            return bottoms
        return [bottom.to(self.precision.type_of_layer(node)) for bottom in bottoms]

    def _run_as_one(self, step: FusionStep, operation: Operation, values: dict[int, Tensor]) -> bool:
        """Run a step by its operation; return whether the operation could."""
        first, last = step.nodes[0], step.nodes[-1]
        bottoms = self.bottoms(first, values)
        bottoms += [values[edge].to(self.precision.type_of_layer(last)) for edge in step.others]
        with _gradients(last):
            try:
                top = operation(*bottoms)
            except (RuntimeError, MemoryError) as error:
                names = f'layer "{first.name}"' if first is last else f'layers "{first.name}" to "{last.name}"'
                raise kernel_error(names, error, bottoms) from error
        if top is not None:
            values[last.tops[0]] = top
        return top is not None

    def _run_layer(self, node: LayerNode, values: dict[int, Tensor], place: Callable[[Tensor], Tensor]) -> None:
        bottoms = self.bottoms(node, values)
        if node.index in self._behind_filters:
            refit(self.layer(node), bottoms)
        with _gradients(node):
            tops = _call(self.layer(node), node, bottoms)
        if not bottoms:
            tops = tuple(self.precision.cast(place(top)) for top in tops)
        values.update(zip(node.tops, tops, strict=True))

    def draw(self, place: Callable[[Tensor], Tensor] = lambda tensor: tensor, inputs: bool = True) -> dict[int, Tensor]:
        """Run the layers without bottoms on this rank; return their tops by edge.

        Args:
            inputs: Input layers give zeros; otherwise they are left out.
        """
        values: dict[int, Tensor] = {}
        for node in self.graph.nodes:
            if node.bottoms or not self.part.runs(node.index) or (node.type == "Input" and not inputs):
                continue
            if node.type == "Input":
                shapes = (self.context.own_shape(self.graph.edges[top].shape) for top in node.tops)
                tops = tuple(torch.zeros(shape, dtype=self.context.precision.compute) for shape in shapes)
            else:
                with torch.no_grad():
                    tops = _call(self.layer(node), node, ())
            values.update(zip(node.tops, (self.precision.cast(place(top)) for top in tops), strict=True))
        return values

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        sources = self.graph.input_edges
        if len(inputs) != len(sources):
            names = ", ".join(self.graph.inputs)
            count = len(sources)
            raise UserError(f"the net takes {count} input{'s' * (count != 1)} ({names}), given {len(inputs)}")
        values = {edge.index: tensor for edge, tensor in zip(sources, inputs, strict=True)}
        outputs = self.graph.outputs
        self.run(0, len(self.graph), values, frozenset(edge.index for edge in outputs))
        tensors = tuple(self.precision.cast(values[edge.index]) for edge in outputs)
        return tensors[0] if len(tensors) == 1 else tensors


class RemoteLayer(Layer):
    """Stands for a layer that this rank does not run."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        raise AssertionError(f'layer "{self.spec.name}" is not run on this rank')


def _agree_on_rotation(layers: Iterable[nn.Module]) -> tuple[ShardRotation, DataLayer] | None:
    """Let all data layers rotate shares as the first one with data does; return its rotation, and the first of them.

    Shares are rotated once an epoch of that layer.
    """
    own = [layer for layer in layers if isinstance(layer, Layer) and layer.own_rotation is not None]
    data_layers = [layer for layer in own if isinstance(layer, DataLayer)]
    rotation = own[0].own_rotation if own else None
    if rotation is None or not data_layers:
        return None
    for layer in data_layers:
        layer.rotate(rotation)
    return rotation, data_layers[0]


def _drop(edges: Sequence[int], values: dict[int, Tensor], keep: Collection[int] | None) -> None:
    for edge in edges:
        if keep is not None and edge not in keep:
            del values[edge]


def _gradients(node: LayerNode) -> AbstractContextManager[None]:
    """Return a scope without gradients if none are wanted; torch.export cuts a program wherever one is opened."""
    return _AS_IT_IS if node.needs_backward or not torch.is_grad_enabled() else torch.no_grad()


def _samples(graph: LayerGraph, node: LayerNode) -> int:
    """Return the extent of axis 0 of the layer's first bottom; 0 if it has none."""
    shape = graph.edges[node.bottoms[0]].shape if node.bottoms else ()
    return shape[0] if shape else 0


def _call(layer: nn.Module, node: LayerNode, bottoms: Sequence[Tensor]) -> tuple[Tensor, ...]:
    try:
        tops = layer(*bottoms)
    except BptError:
        raise
    except (RuntimeError, MemoryError) as error:
        raise kernel_error(f'layer "{node.name}"', error, bottoms) from error
    return (tops,) if isinstance(tops, Tensor) else tuple(tops)
