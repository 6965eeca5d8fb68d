"""ReplayedCompute: training passes that are recorded once their shapes are settled, and then replayed as a whole.

Small nets are bound by what is not a kernel: the Python of layers, autograd, and launches. A recorded pass is without
them. It computes by the parameters, the shapes and the numbers that it was recorded with. So a pass is recorded only
if nothing else about it changes from one iteration to the next, and anew if one of them does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.base.errors import BptError, first_line_of
from bpt.engine.compute import LibraryCompute, Place, Start, Tensors, Update
from bpt.graph.segments import Segment
from bpt.nn.fusion.fusion_steps import hook_tables
from bpt.nn.layers import Layer
from bpt.nn.layers.label_guard import LabelGuard
from bpt.nn.net import Net

SETTLED_AFTER = 16  # like passes, which come after all trials of memory formats
WITHOUT_DRAWS = frozenset({"BatchNorm", "Split", "SoftmaxWithLoss", "EuclideanLoss"})
"""Types that are not ``sample_independent``, but compute by their bottoms and blobs alone."""

Outcome = tuple[dict[int, Tensor], dict[int, Tensor]]
Work = Callable[[Tensors], Sequence[Tensor]]
"""Runs a pass of inputs by edge; returns what it makes."""
Replay = Work


class _Recorded(NamedTuple):
    """A pass that can be replayed, which makes the tensors of ``tops``, ``diffs`` and ``grads``, in this order.

    Attributes:
        tops, diffs: edges.
        grads: the places of parameters that get a gradient.
    """

    tops: list[int]
    diffs: list[int]
    grads: list[int]
    replay: Replay


class ReplayedCompute(LibraryCompute):
    """LibraryCompute for training without other ranks, whose passes are replayed.

    Forward and backward passes of a net of one segment are recorded after SETTLED_AFTER passes of the same shapes. The
    recorded pass is compared with the plain one first. Where recording is impossible, or numbers differ, passes stay
    plain. They are plain while a hook of torch watches a layer. Updates are not recorded, since their rates change.
    """

    def __init__(self, net: Net, place: Place) -> None:
        super().__init__(net, place)
        self._guard = LabelGuard()
        self._refusal = self._why_plain()
        self.reset()

    def reset(self) -> None:
        self._key: object = None
        self._like = 0
        self._recorded: _Recorded | None = None

    def can_join(self, segment: Segment) -> bool:
        return segment.start == 0 and segment.end == len(self._net.graph)

    def forward_backward(
        self, segment: Segment, bottoms: Tensors, start: Start, update: Update | None = None
    ) -> Outcome:
        if self._refusal or any(self._hooks) or any(map(_is_hooked, self._parameters)):
            return super().forward_backward(segment, bottoms, start, update)
        inputs = {**bottoms, **self._net.draw(self._place, inputs=False)}
        key = self._key_of(inputs)
        if key != self._key:
            self.reset()
            self._key = key
        self._like += 1
        if self._like <= SETTLED_AFTER:
            return self._plain(segment, inputs, start)
        return self._settled(segment, inputs, start)

    @cached_property
    def _layers(self) -> list[Layer]:
        return [self._net.layer(node) for node in self._net.graph.nodes]

    @cached_property
    def _hooks(self) -> Sequence[object]:
        return hook_tables(self._layers)

    @cached_property
    def _parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the net, each once; they are the same objects in all iterations."""
        values = map(self._net.value, self._net.graph.params)
        return list({id(value): value for value in values}.values())

    @cached_property
    def _statistics(self) -> list[torch.nn.Parameter]:
        """The parameters that passes change, and no solver."""
        return [self._net.value(param) for param in self._net.graph.params if not param.learnable]

    def _why_plain(self) -> str:
        """Return why passes of the net cannot be replayed; nothing if they can."""
        if self._net.context.rotates:
            return "its ranks take turns with the shares of a batch"
        for node in self._net.graph.nodes:
            layer = self._net.layer(node)
            if not node.bottoms and node.needs_backward:  # such layers run before the recorded pass
                return f'layer "{node.name}" ({node.type}) has no bottom, and is trained'
            draws = not (layer.sample_independent or node.type in WITHOUT_DRAWS)
            if node.bottoms and (draws or layer.rows_by_data or layer.hidden_state):
                return f'layer "{node.name}" ({node.type}) may depend on more than its bottoms, such as the iteration'
        return ""

    def _key_of(self, inputs: Tensors) -> object:
        """Return all that a recorded pass depends on beside the values of its inputs and parameters."""
        context = self._net.context
        shapes = [(edge, each.shape, each.stride(), each.dtype) for edge, each in inputs.items()]
        places = [(each.data_ptr(), each.stride(), each.requires_grad) for each in self._parameters]
        modes = [layer.training for layer in self._layers]
        return shapes, places, context.loss_scale, context.rotation, modes, torch.get_num_threads()

    def _plain(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        """Run the pass from what the layers without bottoms have made."""
        with _sources_apart(self._net):
            return super().forward_backward(segment, inputs, start)

    def _settled(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        """Run a pass like SETTLED_AFTER passes before it."""
        if self._recorded is None:
            return self._record(segment, inputs, start)
        return self._replayed(self._recorded, inputs)

    def _replayed(self, recorded: _Recorded, inputs: Tensors) -> Outcome:
        parameters = self._parameters
        before = {place: parameters[place].grad for place in recorded.grads}
        # Gradients of earlier passes of the iteration may be in the memory of the recorded pass.
        kept = {place: grad.clone() for place, grad in before.items() if grad is not None}
        made = iter(recorded.replay(inputs))
        tops, diffs = (dict(zip(edges, made, strict=False)) for edges in (recorded.tops, recorded.diffs))
        for place, grad in zip(recorded.grads, made, strict=True):
            parameters[place].grad = grad.add_(kept[place]) if place in kept else grad
        return tops, diffs

    def _record(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        """Run the pass plainly, record it, and compare. After a failure passes stay plain, and nothing else changes."""
        parameters, statistics = self._parameters, self._statistics
        earlier = [each.grad for each in parameters]
        _set_grads(parameters, [None] * len(parameters))
        before = [each.detach().clone() for each in statistics]
        tops, diffs = self._plain(segment, inputs, start)
        grads, after = [each.grad for each in parameters], [each.detach().clone() for each in statistics]
        try:
            recorded = self._recorded_pass(segment, inputs, start)
            _restore(statistics, before)
            found = [*recorded.replay(inputs), *statistics]
            expected = [*tops.values(), *diffs.values(), *(grad for grad in grads if grad is not None), *after]
            if len(found) != len(expected) or not all(map(self._agree, found, expected)):
                raise RuntimeError("it computes other numbers than the plain pass")
        except BptError as error:
            self._refuse(str(error))
        except Exception as error:  # torch's classes for this are not public: they may fail in any way
            self._refuse(first_line_of(error))
        else:
            self._accept()
            self._recorded = recorded
        _restore(statistics, after)
        for place, (parameter, grad) in enumerate(zip(parameters, grads, strict=True)):
            own = earlier[place]
            parameter.grad = own.add_(grad) if own is not None and grad is not None else own if grad is None else grad
        return tops, diffs

    def _recorded_pass(self, segment: Segment, inputs: Tensors, start: Start) -> _Recorded:
        edges: list[Outcome] = []
        places: list[list[int]] = []

        def work(inputs: Tensors) -> Sequence[Tensor]:
            parameters = self._parameters
            _set_grads(parameters, [None] * len(parameters))
            tops, diffs = self._plain(segment, inputs, start)
            grads = {place: each.grad for place, each in enumerate(parameters) if each.grad is not None}
            edges.append((tops, diffs))
            places.append(list(grads))
            return [*tops.values(), *diffs.values(), *grads.values()]

        replay = self._replay_of(work, inputs)
        tops, diffs = edges[0]
        return _Recorded(list(tops), list(diffs), places[0], replay)

    @abstractmethod
    def _replay_of(self, work: Work, inputs: Tensors) -> Replay:
        """Return a function that does ``work`` on inputs like these, and leaves ``work`` aside.

        Raises:
            RuntimeError: torch cannot record it.
        """

    @abstractmethod
    def _agree(self, found: Tensor, expected: Tensor) -> bool:
        """Return whether a tensor of a replayed pass is that of the plain one."""

    def _accept(self) -> None:
        """Report that passes are replayed from now on."""

    def _refuse(self, why: str) -> None:
        """Keep passes plain, because recording failed."""
        self._refusal = f"capturing the pass failed: {why}"


@contextmanager
def _sources_apart(net: Net) -> Iterator[None]:
    before, net.sources_apart = net.sources_apart, True
    try:
        yield
    finally:
        net.sources_apart = before


def _is_hooked(parameter: Tensor) -> bool:
    """Return whether a hook of torch watches the gradient of a parameter."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def _set_grads(parameters: Sequence[torch.nn.Parameter], grads: Sequence[Tensor | None]) -> None:
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad


@torch.no_grad()
def _restore(parameters: Sequence[torch.nn.Parameter], values: Sequence[Tensor]) -> None:
    """Set parameters that a pass changes, such as the statistics of a BatchNorm."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
