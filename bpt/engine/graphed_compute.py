"""GraphedCompute: training passes on a GPU, replayed as one CUDA graph once their shapes are settled.

Small nets are bound by launches: the host takes longer to start a kernel than the device to run it. A graph starts all
kernels of a pass at once. It computes by the addresses and numbers that it was captured with. So a pass is captured
only if nothing else about it changes from one iteration to the next, and anew if one of them does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.base.errors import BptError, first_line_of
from bpt.engine.compute import LibraryCompute, Place, Start, Tensors, Update
from bpt.engine.segment_state import SegmentState
from bpt.graph.segments import Segment
from bpt.nn.layers.label_guard import LabelGuard
from bpt.nn.net import Net

LOG = logging.getLogger("bpt")

SETTLED_AFTER = 16  # like passes, which come after all trials of memory formats
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # of the largest value; half precision: 0.02
WITHOUT_DRAWS = frozenset({"BatchNorm", "Split", "SoftmaxWithLoss", "EuclideanLoss"})
"""Types that are not ``sample_independent``, but compute by their bottoms and blobs alone."""

Outcome = tuple[dict[int, Tensor], dict[int, Tensor]]
Replay = Callable[[], object]


def capture_graph(work: Callable[[], Sequence[Tensor]]) -> tuple[Sequence[Tensor], Replay]:
    """Return the tensors that ``work`` fills, and a function that fills them anew; captures without computing.

    Threads that read ahead may use the device meanwhile.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        made = work()
    return made, graph.replay


class _Captured(NamedTuple):
    """A pass that can be replayed.

    Attributes:
        inputs: what it reads, by edge.
        tops, diffs: what it leaves, by edge.
        grads: what it leaves as gradients, by the parameters' places.
    """

    inputs: dict[int, Tensor]
    tops: dict[int, Tensor]
    diffs: dict[int, Tensor]
    grads: dict[int, Tensor]
    replay: Replay


class GraphedCompute(LibraryCompute):
    """LibraryCompute for training on one GPU, without a stop of the host inside of a pass.

    Labels are checked by a LabelGuard. Forward and backward passes of a net of one segment are captured as a CUDA graph
    after SETTLED_AFTER passes of the same shapes. The captured pass is compared with the plain one first. Where it is
    impossible, or differs, the log says why, and passes run one kernel at a time. Updates are no part of the graph,
    since their rates change.
    """

    def __init__(self, net: Net, place: Place) -> None:
        super().__init__(net, place)
        self._guard = LabelGuard()
        self._refusal = _refusal(net)
        self._told = False
        self.reset()

    def reset(self) -> None:
        self._key: object = None
        self._like = 0
        self._captured: _Captured | None = None

    def check(self) -> None:
        self._guard.check()

    def can_join(self, segment: Segment) -> bool:
        return segment.start == 0 and segment.end == len(self._net.graph)

    def forward(self, segment: Segment, bottoms: Tensors, grad: bool) -> tuple[dict[int, Tensor], SegmentState]:
        if not grad:
            return super().forward(segment, bottoms, grad)
        with self._guard.active():
            return super().forward(segment, bottoms, grad)

    def forward_backward(
        self, segment: Segment, bottoms: Tensors, start: Start, update: Update | None = None
    ) -> Outcome:
        if self._refusal:
            self._tell(f"no CUDA graph: {self._refusal}")
            return super().forward_backward(segment, bottoms, start, update)
        inputs = {**bottoms, **self._net.draw(self._place, inputs=False)}
        key = self._key_of(inputs)
        if key != self._key:
            self.reset()
            self._key = key
        self._like += 1
        if self._captured is not None:
            return self._replayed(self._captured, inputs)
        if self._like <= SETTLED_AFTER:
            return self._plain(segment, inputs, start)
        return self._capture(segment, inputs, start)

    @cached_property
    def _parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the net, each once; they are the same objects in all iterations."""
        values = map(self._net.value, self._net.graph.params)
        return list({id(value): value for value in values}.values())

    @cached_property
    def _statistics(self) -> list[torch.nn.Parameter]:
        """The parameters that passes change, and no solver."""
        return [self._net.value(param) for param in self._net.graph.params if not param.learnable]

    def _tell(self, message: str) -> None:
        if not self._told:
            self._told = True
            LOG.info("%s", message)

    def _key_of(self, inputs: Tensors) -> object:
        """Return all that a captured pass depends on beside the values of its inputs and parameters."""
        context = self._net.context
        shapes = [(edge, each.shape, each.stride(), each.dtype) for edge, each in inputs.items()]
        places = [(each.data_ptr(), each.stride()) for each in self._parameters]
        return shapes, places, context.loss_scale, context.rotation, self._net.training

    def _plain(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        """Run the pass from what the layers without bottoms have made."""
        with _sources_apart(self._net):
            return super().forward_backward(segment, inputs, start)

    def _replayed(self, captured: _Captured, inputs: Tensors) -> Outcome:
        parameters = self._parameters
        before = {place: parameters[place].grad for place in captured.grads}
        # Gradients of earlier passes of the iteration may be in the graph's own memory.
        kept = {place: grad.clone() for place, grad in before.items() if grad is not None}
        for edge, value in inputs.items():
            captured.inputs[edge].copy_(value, non_blocking=True)
        captured.replay()
        for place, grad in captured.grads.items():
            if place in kept:
                grad.add_(kept[place])
            parameters[place].grad = grad
        return dict(captured.tops), dict(captured.diffs)

    def _capture(self, segment: Segment, inputs: Tensors, start: Start) -> Outcome:
        """Run the pass plainly, capture it, and compare; a failure changes nothing but that passes stay plain."""
        parameters, statistics = self._parameters, self._statistics
        earlier = [each.grad for each in parameters]
        _set_grads(parameters, [None] * len(parameters))
        before = [each.detach().clone() for each in statistics]
        tops, diffs = self._plain(segment, inputs, start)
        grads, after = [each.grad for each in parameters], [each.detach().clone() for each in statistics]
        try:
            captured = self._captured_pass(segment, inputs, start)
            _restore(statistics, before)
            captured.replay()
            found = [*captured.tops.values(), *captured.diffs.values(), *captured.grads.values(), *statistics]
            expected = [*tops.values(), *diffs.values(), *(grad for grad in grads if grad is not None), *after]
            if not _are_close(found, expected):
                raise RuntimeError("it computes other numbers than the plain pass")
        except BptError as error:
            self._refuse(str(error))
        except (RuntimeError, AssertionError, AttributeError) as error:
            self._refuse(first_line_of(error))
        else:
            self._captured = captured
            self._tell("Forward and backward passes are replayed as one CUDA graph")
        _restore(statistics, after)
        for place, (parameter, grad) in enumerate(zip(parameters, grads, strict=True)):
            own = earlier[place]
            parameter.grad = own.add_(grad) if own is not None and grad is not None else own if grad is None else grad
        return tops, diffs

    def _captured_pass(self, segment: Segment, inputs: Tensors, start: Start) -> _Captured:
        own = {edge: value.clone(memory_format=torch.preserve_format) for edge, value in inputs.items()}
        outcome: list[Outcome] = []
        grads: dict[int, Tensor] = {}

        def work() -> Sequence[Tensor]:
            parameters = self._parameters
            _set_grads(parameters, [None] * len(parameters))
            tops, diffs = self._plain(segment, own, start)
            outcome.append((tops, diffs))
            made = {place: each.grad for place, each in enumerate(parameters) if each.grad is not None}
            grads.clear()
            grads.update(made)
            return [*tops.values(), *diffs.values(), *made.values()]

        made, replay = capture_graph(work)
        tops, diffs = outcome[0]
        places = list(grads)
        tensors = iter(made)
        return _Captured(
            own,
            {edge: next(tensors) for edge in tops},
            {edge: next(tensors) for edge in diffs},
            {place: next(tensors) for place in places},
            replay,
        )

    def _refuse(self, why: str) -> None:
        self._refusal = f"capturing the pass failed: {why}"
        LOG.warning("no CUDA graph, kernels are launched one by one: %s", self._refusal)
        self._told = True


def _refusal(net: Net) -> str:
    """Return why passes of a net cannot be replayed; nothing if they can."""
    if net.context.rotates:
        return "its ranks take turns with the shares of a batch"
    for node in net.graph.nodes:
        layer = net.layer(node)
        draws = not (layer.sample_independent or node.type in WITHOUT_DRAWS)
        if node.bottoms and (draws or layer.rows_by_data or layer.hidden_state):
            return f'layer "{node.name}" ({node.type}) may depend on more than its bottoms, such as the iteration'
    return ""


@contextmanager
def _sources_apart(net: Net) -> Iterator[None]:
    before, net.sources_apart = net.sources_apart, True
    try:
        yield
    finally:
        net.sources_apart = before


def _set_grads(parameters: Sequence[torch.nn.Parameter], grads: Sequence[Tensor | None]) -> None:
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad


@torch.no_grad()
def _restore(parameters: Sequence[torch.nn.Parameter], values: Sequence[Tensor]) -> None:
    """Set parameters that a pass changes, such as the statistics of a BatchNorm."""
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def _are_close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether tensors are equal except for rounding, and finite where the others are."""
    if len(found) != len(expected):
        return False
    for one, other in zip(found, expected, strict=True):
        most = CLOSE.get(other.dtype, 0.02) * float(other.detach().abs().amax()) if other.numel() else 0.0
        if one.shape != other.shape or not torch.allclose(one, other, rtol=0, atol=most, equal_nan=True):
            return False
    return True
