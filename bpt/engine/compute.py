"""Compute: how the layers of a segment run, forward and backward; LibraryCompute uses torch's own threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bpt.base.errors import BptError, RunError
from bpt.engine.differentiate import add_gradients
from bpt.engine.segment_state import SegmentState, Weights
from bpt.engine.weight_gradients import run_first_part
from bpt.graph.segments import Segment
from bpt.graph.transfers import wants_diff
from bpt.nn.layers.python_errors import explain
from bpt.nn.net import Net
from bpt.system.device.torch_errors import is_out_of_memory, kernel_error

Place = Callable[[Tensor], Tensor]
Update = Callable[[Sequence[nn.Parameter], int, int | None], None]
"""Applies the gradients of parameters, or of their rows (axis 0) from one to another (``None``: to the last)."""
Tensors = Mapping[int, Tensor]
Start = Callable[[int, Tensor], Tensor | None]
"""The diff that flows into an edge from behind the segment, from the edge and its value."""


class Compute(ABC):
    """Runs one segment at a time, between edges that are detached from all others.

    Attributes:
        updates: whether ``backward`` calls an ``update``.
    """

    @property
    def updates(self) -> bool:
        return False

    @abstractmethod
    def forward(self, segment: Segment, bottoms: Tensors, grad: bool) -> tuple[dict[int, Tensor], SegmentState]:
        """Run ``segment`` on ``bottoms``; return its detached outputs, and what its backward needs if ``grad``."""

    @abstractmethod
    def backward(
        self,
        segment: Segment,
        state: SegmentState,
        diffs: Mapping[int, Tensor | None],
        weights: Weights,
        update: Update | None = None,
    ) -> dict[int, Tensor]:
        """Run ``segment`` backward from ``diffs`` of its outputs; return the diffs that its inputs want.

        The gradients of parameters are added to their ``.grad``.

        Args:
            weights: copies of parameters by which the layers compute now.
            update: may be called for parameters whose gradients are complete and whose values nothing needs any more.
                The caller updates the other parameters.
        """

    def backward_weights(self, segment: Segment, state: SegmentState) -> None:
        """Add the gradients that ``backward`` has left in ``state.due`` to the ``.grad`` of parameters."""
        assert not state.due, segment

    def can_join(self, segment: Segment) -> bool:
        """Return whether ``forward_backward`` need not run all layers forward before it runs one backward."""
        return False

    def forward_backward(
        self, segment: Segment, bottoms: Tensors, start: Start, update: Update | None = None
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Run ``forward`` and then ``backward`` without a stop; return the segment's outputs, and its inputs' diffs."""
        tops, state = self.forward(segment, bottoms, grad=True)
        return tops, self.backward(segment, state, {edge: start(edge, tops[edge]) for edge in state.tops}, {}, update)

    def check(self) -> None:
        """Raise the errors of data that passes on a GPU have noted; the host waits for the device."""
        return

    def reset(self) -> None:
        """Drop all plans: the net's blobs have other shapes, or it is cut into other segments."""
        return

    def close(self) -> None:
        """End threads; another pass starts them again."""
        return


class LibraryCompute(Compute):
    """Runs segments by autograd and the threads of torch.

    Args:
        place: puts what layers without bottoms make on the device, in the memory layout in use.
        keeps_graphs: a segment's backward may be repeated; costs memory.
    """

    def __init__(self, net: Net, place: Place, keeps_graphs: bool = False) -> None:
        self._net = net
        self._place = place
        self._keeps_graphs = keeps_graphs

    def forward(self, segment: Segment, bottoms: Tensors, grad: bool) -> tuple[dict[int, Tensor], SegmentState]:
        state = SegmentState()
        env: dict[int, Tensor] = {}
        for edge, bottom in bottoms.items():
            wants = grad and wants_diff(self._net.graph, edge)
            env[edge] = state.leaves[edge] = bottom.detach().requires_grad_(wants)
        with torch.set_grad_enabled(grad):
            self._net.run(segment.start, segment.end, env, set(segment.outputs), self._place)
        if grad:
            state.tops = {edge: env[edge] for edge in segment.outputs if env[edge].requires_grad}
        return {edge: env[edge].detach() for edge in segment.outputs}, state

    def backward(
        self,
        segment: Segment,
        state: SegmentState,
        diffs: Mapping[int, Tensor | None],
        weights: Weights,
        update: Update | None = None,
    ) -> dict[int, Tensor]:
        """Run ``segment`` backward; the gradients of copies go to the copies, and the caller does all updates."""
        roots, grads = [], []
        for edge, top in state.tops.items():
            diff = diffs[edge]
            if diff is not None:
                roots.append(top)
                grads.append(diff)
        if roots:
            with self._explain(segment):
                self._differentiate(state, roots, grads)
        return {
            edge: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            for edge, leaf in state.leaves.items()
            if leaf.requires_grad
        }

    def _differentiate(self, state: SegmentState, roots: list[Tensor], grads: list[Tensor]) -> None:
        """Add the gradients that follow from ``grads`` of ``roots`` to those of parameters and of ``state.leaves``."""
        add_gradients(roots, grads, self._keeps_graphs)

    @contextmanager
    def _explain(self, segment: Segment) -> Iterator[None]:
        """Raise errors of the scope with the layers of ``segment``."""
        try:
            yield
        except BptError:
            raise
        except Exception as error:
            nodes = self._net.graph.nodes[segment.start : segment.end]
            first, last = nodes[0].name, nodes[-1].name
            where = f'layer "{first}"' if first == last else f'layers "{first}" to "{last}"'
            if not isinstance(error, (RuntimeError, MemoryError)):  # no kernel raises others, but a user's code may
                if any(node.type == "Python" for node in nodes):
                    raise RunError(f"backward pass, {where}: {explain(error)}") from error
                raise
            hint = "" if first == last or is_out_of_memory(error) else "; debug_info: true tells which layer"
            raise RunError(f"backward pass, {kernel_error(where, error)}{hint}") from error


class TwoPartCompute(LibraryCompute):
    """Runs backward passes in two parts (``schedule: ZERO_BUBBLE``): ``backward``, and then ``backward_weights``."""

    def _differentiate(self, state: SegmentState, roots: list[Tensor], grads: list[Tensor]) -> None:
        leaves = [leaf for leaf in state.leaves.values() if leaf.requires_grad]
        found, state.due = run_first_part(roots, grads, leaves)
        for leaf, gradient in zip(leaves, found, strict=True):
            leaf.grad = gradient

    def backward_weights(self, segment: Segment, state: SegmentState) -> None:
        with self._explain(segment):
            while state.due:
                state.due.pop(0).add()
