"""StepPlans: the planned steps of a net's runs, which are made when a run first needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bpt.graph.autocast import HalfPrecision
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.fusion.fixed_steps import FixedSteps
from bpt.nn.fusion.fusion_steps import FusionStep, plan_steps
from bpt.nn.layers import Layer


class StepPlans:
    """The steps of one net, by what they depend on; they are planned anew for another graph or precision."""

    def __init__(self) -> None:
        self._planned: dict[tuple[object, ...], Sequence[FusionStep]] = {}
        self._planned_for: tuple[object, ...] = ()
        self._fixed = False

    def steps(
        self, graph: LayerGraph, layers: Sequence[Layer], run: range, keep: Collection[int], in_half: HalfPrecision
    ) -> Sequence[FusionStep]:
        """Return the layers of a ``run`` in order, fused where no edge of ``keep`` is between them.

        Args:
            layers: of the whole graph.
            in_half: which layers compute in half precision.
        """
        if not self._planned_for or self._planned_for[0] is not graph or self._planned_for[1] is not in_half:
            self._planned.clear()
            self._planned_for = graph, in_half
        grad = torch.is_grad_enabled()
        key = self._fixed, run, frozenset(keep), grad, tuple(layer.training for layer in layers)
        steps = self._planned.get(key)
        if steps is None:
            if self._fixed:  # what is prepared takes memory: that of one way to run is enough
                self._drop_prepared()
            steps = plan_steps(graph, layers, run, keep, in_half, grad=grad, fixed=self._fixed)
            if self._fixed and not grad:
                steps = FixedSteps(steps, layers, keep)
            self._planned[key] = steps
        return steps

    @contextmanager
    def fixed_parameters(self) -> Iterator[None]:
        """Open a scope in which no parameter changes: what depends on parameters alone is computed once.

        In passes without gradients, BatchNorm by stored statistics, Scale and Bias are folded into the convolutions
        before them, with a sum and a ReLU behind. Weights are laid out for the processor, images channels-last. That
        costs memory for another copy of the weights. Such a scope within another one changes nothing.
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
        """Return an empty state for copies: what is prepared cannot be copied."""
        return {"_planned": {}, "_planned_for": (), "_fixed": False}
