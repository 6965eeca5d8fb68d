"""FixedSteps: the steps of passes without gradients while no parameter changes, which become a pass program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import overload

import torch
from torch import Tensor

from bpt.nn.fusion import pass_program
from bpt.nn.fusion.fusion_steps import FusionStep, hook_tables
from bpt.nn.fusion.operations import PreparedOperation
from bpt.nn.layers import Layer

PASSES = 2  # passes of one shape that run by the steps, before they become a program
SHAPES = 2  # number of shapes that have programs; each program has its own copy of the weights

Key = tuple[object, ...]


class FixedSteps(Sequence[FusionStep]):
    """Steps in order. From the third pass of one shape on, a pass program runs them, if it can and no hook is set.

    Args:
        steps: the steps, planned for fixed parameters.
        layers: the layers of the whole graph.
        keep: the edges that stay after a pass.
    """

    def __init__(self, steps: Sequence[FusionStep], layers: Sequence[Layer], keep: Collection[int]) -> None:
        self._steps, self._layers = tuple(steps), layers
        made = {top for step in steps for node in step.nodes for top in node.tops if node.bottoms}
        read = dict.fromkeys(edge for step in steps for edge in step.bottoms)
        self._sources = tuple(edge for edge in read if edge not in made)
        self._kept = tuple(edge for edge in keep if edge in made)
        self._dropped = tuple(edge for edge in self._sources if edge not in keep)
        self._hooks = hook_tables([layers[node.index] for step in steps for node in step.nodes])
        self._fits = bool(self._sources) and pass_program.can_record(steps, layers)
        self._passes: dict[Key, int] = {}
        self._programs: dict[Key, pass_program.Function] = {}

    @overload
    def __getitem__(self, index: int) -> FusionStep: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[FusionStep]: ...
    def __getitem__(self, index: int | slice) -> FusionStep | Sequence[FusionStep]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def num_programs(self) -> int:
        """The number of shapes of samples for which there is a program."""
        return len(self._programs)

    def run(self, values: dict[int, Tensor], one_by_one: Callable[[], None]) -> None:
        """Run the steps on ``values``, as Net.run does.

        Args:
            one_by_one: runs the steps by themselves.
        """
        if not self._fits or any(self._hooks) or torch.is_autocast_enabled("cpu"):
            return one_by_one()
        samples = [values[edge] for edge in self._sources]
        key = tuple((tensor.shape, tensor.stride()) for tensor in samples)
        function = self._programs.get(key)
        if function is None:
            one_by_one()
            return self._count(key, samples, values)
        try:
            *tops, largest = function(*samples)
        except RuntimeError:  # the steps say where there is no memory, or a tensor of another type
            return one_by_one()
        if not float(largest) <= pass_program.LARGEST:  # or NaN
            return one_by_one()
        values.update(zip(self._kept, tops, strict=True))
        for edge in self._dropped:
            del values[edge]
        return None

    def _count(self, key: Key, samples: Sequence[Tensor], values: dict[int, Tensor]) -> None:
        """Count a pass of the steps; after the last one that runs by them, record a program."""
        self._passes[key] = self._passes.get(key, 0) + 1
        floats = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in samples)
        if self._passes[key] != PASSES or not floats or len(self._programs) == SHAPES:
            return
        expected = {edge: values[edge] for edge in self._kept}
        by_edge = dict(zip(self._sources, samples, strict=True))
        function = pass_program.record(self._steps, self._layers, by_edge, expected)
        if function is not None:
            self._programs[key] = function
            for step in self._steps:
                if isinstance(step.operation, PreparedOperation):
                    step.operation.release()  # the program has its own
