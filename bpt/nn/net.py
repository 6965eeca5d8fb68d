"""Net: a torch.nn.Module made from a LayerGraph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bpt.base.errors import BptError, LayerError, RunError, UserError
from bpt.config.precision import HALF
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import HalfPrecision, choosable, half_precision, without_half_precision
from bpt.graph.layer_graph import LayerGraph, LayerNode, Param
from bpt.graph.layer_spec import Autocast
from bpt.graph.part import WHOLE, Part
from bpt.graph.share import ShardRotation
from bpt.nn.fusion.fusion_steps import FusionStep, one_by_one, plan_steps
from bpt.nn.fusion.operations import Operation
from bpt.nn.layers import LAYERS, DataLayer, Layer
from bpt.nn.layers.fillers import fill
from bpt.nn.layers.filter import behind_filters, refit
from bpt.nn.layers.graph_tracing import is_written_down
from bpt.nn.layers.layer_text import blobs_in_text, notice_unused_settings
from bpt.nn.pass_context import CurrentPass, PassContext
from bpt.system.device.torch_errors import kernel_error


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
        filled: whether parameters get values by their fillers; else whoever makes the net gives them all.

    Attributes:
        held: of ``graph.learnable`` what this rank holds, whole or a slice, in the same order.
        sources_apart: layers without bottoms are run by ``draw``, and ``run`` leaves them out: the samples that they
            make at once go through the other layers in micro-batches, and some of these on other ranks.

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
        self._filled = filled
        self.graph = graph
        self.part = part
        self.held = tuple(param for param in graph.learnable if part.holds(param))
        self._pass = CurrentPass(context or PassContext())
        self.sources_apart = False
        self.layers = nn.ModuleList()
        self._values: dict[int, nn.Parameter] = {}  # by Param.index
        self._planned: dict[tuple[object, ...], tuple[FusionStep, ...]] = {}
        self._fixed = False
        self.in_half: HalfPrecision = without_half_precision(graph)
        precision = self.context.precision
        self.compute_in_half(() if precision.measures or precision.named else None)
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
                self._values[index] = self._make(param, shared or {}, stated)
                layer.add_blob(self._values[index], part.shape_of(param))
            self.layers.append(layer)
        self._behind_filters = behind_filters(graph)
        self.training = graph.phase == pb.TRAIN  # a layer with a phase of its own keeps that
        self._agree_on_rotation()

    @property
    def context(self) -> PassContext:
        """Of the pass under way, or of the last one."""
        return self._pass.context

    def enter(self, context: PassContext) -> None:
        """Go on with a pass, or a micro-batch of it: all layers see this context from now on."""
        self._pass.context = context

    def next_rotation(self) -> float:
        """Return the part of the batch by which the shares of the next pass are rotated; 0 if they never are."""
        if self._rotation is None or self._rotates_by is None:
            return 0.0
        return self._rotation.part(self._rotates_by.position // self._rotates_by.share.total)

    def compute_in_half(self, layers: Collection[str] | None) -> None:
        """From now on let these of the layers that multiply compute in half precision, and what lies between them.

        Args:
            layers: by name; ``None``: all, which is so from the start, unless the precision is to be measured, or is
                that of some layers. Without effect where the run's precision has no half, and on layers whose own text
                says in which numbers.
        """
        graph = self.graph
        if self.context.precision.half is not None:
            full = () if layers is None else {node.name for node in choosable(graph) if node.name not in layers}
            self.in_half = half_precision(graph, full)
        self._casts = any(self.in_half.layers)
        self._planned.clear()

    def multiplying_in_half(self) -> frozenset[str]:
        """Return the layers that ``compute_in_half`` was told, by name."""
        nodes = (node for node in self.graph.nodes if self.in_half.layers[node.index])
        return frozenset(node.name for node in nodes if node.layer_type.autocast(node.spec) is Autocast.HALF)

    @property
    def fastest_type(self) -> torch.dtype:
        """The numbers in which layers multiply, or some of them."""
        return self.context.precision.blob_type(any(self.in_half.layers))

    def type_of(self, edge: int) -> torch.dtype:
        """Return the numbers of a blob of this net's graph, and of its diff."""
        return self.context.precision.blob_type(self.in_half.edges[edge])

    def _agree_on_rotation(self) -> None:
        """Shares are rotated once an epoch of the first layer that has data; all data layers keep to it."""
        self._rotation: ShardRotation | None = None
        self._rotates_by: DataLayer | None = None
        if not (self.context.rotates and self.training):
            return
        for layer in self.layers:
            if isinstance(layer, Layer) and layer.own_rotation is not None:
                self._rotation = self._rotation or layer.own_rotation
                if isinstance(layer, DataLayer):
                    self._rotates_by = self._rotates_by or layer
                    layer.rotate(self._rotation)

    def _make(
        self, param: Param, shared: Mapping[tuple[str, int], nn.Parameter], stated: Sequence[Tensor]
    ) -> nn.Parameter:
        """Return the parameter, filled; ``stated`` are the layer's values in the text, if it has any."""
        node = self.graph.nodes[param.layer]
        shape = self.part.shape_of(param)
        given = shared.get((node.name, param.blob))
        if given is not None:
            if tuple(given.shape) != shape:
                raise node.spec.error(
                    f"parameter {param.blob} has shape {shape}, but the net that shares its "
                    f"parameters has {tuple(given.shape)}"
                )
            return given
        if param.shared:
            return self._owners(param, node)
        try:
            value = torch.empty(shape, dtype=self.context.precision.master)
        except RuntimeError as error:
            raise RunError(f'layer "{node.name}": no memory for a parameter of shape {shape}') from error
        if stated:
            part = self.part.slice_of(param)
            value.copy_(stated[param.blob][part.index(len(param.shape))] if part else stated[param.blob])
        elif self._filled:
            self._fill(value, param)
        trains = param.learnable and (param.lr_mult != 0 or self.graph.force_backward)
        return nn.Parameter(value, requires_grad=trains)

    def _fill(self, value: Tensor, param: Param) -> None:
        node = self.graph.nodes[param.layer]
        generator = self.context.generator("filler", node.name, param.blob)
        try:
            fill(value, param.filler, generator, param.shape, self.part.slice_of(param))
        except LayerError:
            raise
        except UserError as error:
            raise node.spec.error(str(error)) from None

    def _owners(self, param: Param, node: LayerNode) -> nn.Parameter:
        """Return the values of the parameter that ``param`` shares.

        Under share_mode PERMISSIVE in the owner's shape.
        """
        owner = self.graph.params[param.owner]
        if not self.holds(owner) or self.part.slice_of(owner) != self.part.slice_of(param):
            raise node.spec.error(
                f'shares parameter {param.blob} with layer "{self.graph.nodes[owner.layer].name}", '
                "which runs on other ranks; set parallel_param { mode: DATA } for both"
            )
        return self._values[owner.index]

    def holds(self, param: Param) -> bool:
        """Return whether this rank holds a parameter blob of this net's graph, whole or a slice."""
        return self.part.holds(param)

    def value(self, param: Param) -> nn.Parameter:
        """Return the values (and ``.grad``) of a parameter blob of this net's graph that this rank holds."""
        return self._values[param.index]

    def values_by_name(self) -> dict[tuple[str, int], nn.Parameter]:
        """(layer name, blob index) → values, for another net to share; of what this rank holds."""
        params = self.graph.params
        return {
            (self.graph.nodes[params[index].layer].name, params[index].blob): value
            for index, value in self._values.items()
        }

    def layer(self, node: LayerNode) -> Layer:
        layer = self.layers[node.index]
        assert isinstance(layer, Layer)
        return layer

    @property
    def hidden_states(self) -> tuple[tuple[Tensor, ...], ...]:
        """The hidden state of each layer; may be set."""
        return tuple(self.layer(node).hidden_state for node in self.graph.nodes)

    @hidden_states.setter
    def hidden_states(self, states: Sequence[tuple[Tensor, ...]]) -> None:
        for node, state in zip(self.graph.nodes, states, strict=True):
            self.layer(node).hidden_state = state

    def data_layers(self) -> dict[str, DataLayer]:
        """Layer name → layer, for the layers that read a data set."""
        return {l.spec.name: l for l in self.layers if isinstance(l, DataLayer)}

    def close(self) -> None:
        """Stop reading ahead, close all data sources, and complete the files that layers write."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.close()

    def reshape(self, graph: LayerGraph) -> None:
        """Take over ``graph``: the same layers and parameters with other blob shapes."""
        for old, new in zip(self.graph.params, graph.params, strict=True):
            if old.shape != new.shape:
                raise graph.nodes[new.layer].spec.error(
                    f"the new input shape would change parameter {new.blob} from {old.shape} to {new.shape}"
                )
        self.graph = graph
        self._planned.clear()
        self.held = tuple(param for param in graph.learnable if self.holds(param))
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
            steps: the layers as a caller has planned them; by default as it is best for ``keep``.
        """
        for step in self._steps(range(start, end), keep) if steps is None else steps:
            node = step.nodes[0]
            if node.type == "Input" or (self.sources_apart and not node.bottoms):
                continue  # the caller has set its tops
            if step.operation is not None and not step.observed and self._run_as_one(step, step.operation, values):
                self._drop(step.bottoms, values, keep)
                continue
            for each in step.nodes:
                self._run_layer(each, values, place)
                self._drop(each.bottoms, values, keep)

    @staticmethod
    def _drop(edges: Sequence[int], values: dict[int, Tensor], keep: Collection[int] | None) -> None:
        for edge in edges:
            if keep is not None and edge not in keep:
                del values[edge]

    def _steps(self, run: range, keep: Collection[int] | None) -> Sequence[FusionStep]:
        """Return the layers of a ``run`` in the order in which they run, fused where nobody wants the blobs between."""
        if keep is None or self._behind_filters or is_written_down():  # a compiler fuses by itself
            return one_by_one(self.graph, run)
        grad = torch.is_grad_enabled()
        key = self._fixed, run, frozenset(keep), grad, tuple(layer.training for layer in self.layers)
        steps = self._planned.get(key)
        if steps is None:
            layers = [self.layer(node) for node in self.graph.nodes]
            if self._fixed:  # what is prepared takes memory: that of one way to run is enough
                self._drop_prepared()
            steps = plan_steps(self.graph, layers, run, keep, self.in_half, grad=grad, fixed=self._fixed)
            self._planned[key] = steps
        return steps

    @contextmanager
    def fixed_parameters(self) -> Iterator[None]:
        """While no parameter changes: passes without gradients compute once what depends on parameters alone.

        BatchNorm by stored statistics, Scale and Bias are folded into the convolutions before them, a sum and a ReLU
        behind are done by the way, and weights are laid out for the processor, images channels-last. That costs memory
        for another copy of the weights. Within such a scope another one changes nothing.
        """
        if self._fixed:
            yield
            return
        self._fixed = True
        try:
            yield
        finally:
            self._fixed = False
            self._drop_prepared()

    def _drop_prepared(self) -> None:
        self._planned = {key: steps for key, steps in self._planned.items() if not key[0]}

    def __getstate__(self) -> dict[str, Any]:
        """Return for copies, which plan anew: what is prepared cannot be copied."""
        return self.__dict__ | {"_planned": {}, "_fixed": False}

    def bottoms(self, node: LayerNode, values: Mapping[int, Tensor]) -> list[Tensor]:
        """Return what a layer reads, in the numbers that it computes in, so that diffs flow where they are wanted."""
        bottoms = [
            values[edge] if wanted else values[edge].detach()
            for edge, wanted in zip(node.bottoms, node.bottom_needs_diff, strict=True)
        ]
        if not self._casts:
            return bottoms
        return [bottom.to(self.numbers_of(node)) for bottom in bottoms]

    def numbers_of(self, node: LayerNode) -> torch.dtype:
        """In which numbers a layer computes."""
        return self.context.precision.blob_type(self.in_half.layers[node.index])

    def _run_as_one(self, step: FusionStep, operation: Operation, values: dict[int, Tensor]) -> bool:
        """Run a step by its operation; whether that can be."""
        first, last = step.nodes[0], step.nodes[-1]
        others = (values[edge].to(self.numbers_of(last)) for edge in step.others)
        bottoms = [*self.bottoms(first, values), *others]
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
            tops = tuple(self.typed(place(top)) for top in tops)
        values.update(zip(node.tops, tops, strict=True))

    def draw(self, place: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> dict[int, Tensor]:
        """Run the layers without bottoms that this rank holds: edge index → tensor. Input layers give zeros."""
        values: dict[int, Tensor] = {}
        for node in self.graph.nodes:
            if node.bottoms or not self.part.runs(node.index):
                continue
            if node.type == "Input":
                shapes = (self.context.own_shape(self.graph.edges[top].shape) for top in node.tops)
                tops = tuple(torch.zeros(shape, dtype=self.context.precision.compute) for shape in shapes)
            else:
                with torch.no_grad():
                    tops = _call(self.layer(node), node, ())
            values.update(zip(node.tops, (self.typed(place(top)) for top in tops), strict=True))
        return values

    def typed(self, top: Tensor) -> Tensor:
        """What a layer without bottoms has made, which is float32, or what is handed out, in the run's precision."""
        return top.to(self.context.precision.compute) if top.dtype in (torch.float32, *HALF) else top

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        sources = [edge for edge in self.graph.edges if self.graph.nodes[edge.producer].type == "Input"]
        if len(inputs) != len(sources):
            names = ", ".join(self.graph.inputs)
            count = len(sources)
            raise UserError(f"the net takes {count} input{'s' * (count != 1)} ({names}), given {len(inputs)}")
        values = {edge.index: tensor for edge, tensor in zip(sources, inputs, strict=True)}
        outputs = self.graph.outputs
        self.run(0, len(self.graph), values, frozenset(edge.index for edge in outputs))
        tensors = tuple(self.typed(values[edge.index]) for edge in outputs)
        return tensors[0] if len(tensors) == 1 else tensors


class RemoteLayer(Layer):
    """Stands for a layer that this rank does not run."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        raise AssertionError(f'layer "{self.spec.name}" is not run on this rank')


def _gradients(node: LayerNode) -> AbstractContextManager[None]:
    """No gradients where none are wanted: torch.export cuts a program wherever autograd is told to look away."""
    return nullcontext() if node.needs_backward or not torch.is_grad_enabled() else torch.no_grad()


def _samples(graph: LayerGraph, node: LayerNode) -> int:
    """Axis 0 of the layer's first bottom; 0 if it has none."""
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
