"""ParameterMaker: makes and fills the parameters that one rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bpt.base.errors import LayerError, RunError, UserError
from bpt.graph.layer_graph import LayerGraph, LayerNode, Param
from bpt.graph.part import Part
from bpt.nn.layers.fillers import fill
from bpt.nn.pass_context import PassContext


class ParameterMaker:
    """Makes the parameters of a graph, in the order of its layers.

    Args:
        part: what this rank holds. Slices have the values that they have in the whole, which is never allocated.
        context: seed and precision; fillers draw from it.
        shared: parameters to use instead of own ones, by (layer name, blob index).
        filled: whether parameters get values by their fillers.

    Attributes:
        values: the parameters that have been made, by ``Param.index``.
    """

    def __init__(
        self,
        graph: LayerGraph,
        part: Part,
        context: PassContext,
        shared: Mapping[tuple[str, int], nn.Parameter],
        filled: bool,
    ) -> None:
        self.values: dict[int, nn.Parameter] = {}
        self._graph = graph
        self._part = part
        self._context = context
        self._shared = shared
        self._filled = filled

    def make(self, param: Param, stated: Sequence[Tensor]) -> nn.Parameter:
        """Return the parameter, filled; ``stated`` are the layer's values in the text, if it has any."""
        node = self._graph.nodes[param.layer]
        shape = self._part.shape_of(param)
        value = self._shared.get((node.name, param.blob))
        if value is None:
            value = self._value_of_owner(param, node) if param.shared else self._new(param, node, stated)
        elif tuple(value.shape) != shape:
            raise node.spec.error(
                f"parameter {param.blob} has shape {shape}, but the net that shares its "
                f"parameters has {tuple(value.shape)}"
            )
        self.values[param.index] = value
        return value

    def _new(self, param: Param, node: LayerNode, stated: Sequence[Tensor]) -> nn.Parameter:
        shape = self._part.shape_of(param)
        try:
            value = torch.empty(shape, dtype=self._context.precision.master)
        except RuntimeError as error:
            raise RunError(f'layer "{node.name}": no memory for a parameter of shape {shape}') from error
        part = self._part.slice_of(param)
        if stated:
            value.copy_(stated[param.blob][part.index(len(param.shape))] if part else stated[param.blob])
        elif self._filled:
            generator = self._context.generator("filler", node.name, param.blob)
            try:
                fill(value, param.filler, generator, param.shape, part)
            except LayerError:
                raise
            except UserError as error:
                raise node.spec.error(str(error)) from None
        trains = param.learnable and (param.lr_mult != 0 or self._graph.force_backward)
        return nn.Parameter(value, requires_grad=trains)

    def _value_of_owner(self, param: Param, node: LayerNode) -> nn.Parameter:
        """Return the values of the parameter that ``param`` shares; in the owner's shape if that is PERMISSIVE."""
        owner = self._graph.params[param.owner]
        if not self._part.holds(owner) or self._part.slice_of(owner) != self._part.slice_of(param):
            raise node.spec.error(
                f'shares parameter {param.blob} with layer "{self._graph.nodes[owner.layer].name}", '
                "which runs on other ranks; set parallel_param { mode: DATA } for both"
            )
        return self.values[owner.index]
