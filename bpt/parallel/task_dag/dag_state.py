"""The data that the tasks of a pass, and of its backward pass, hand to each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bpt.engine.compute import Update
from bpt.engine.segment_state import SegmentState, Weights
from bpt.nn.kernels.channels_last import format_of

WHOLE = -1  # in the place of a part's number: the blob of all samples

Key = tuple[int, int]  # edge, part


@dataclass
class DagState(SegmentState):
    """The data that a segment's forward leaves for its backward; ``leaves`` and ``tops`` are detached, and whole.

    A task's entries are its own until it is complete, so tasks need no lock for them.

    Attributes:
        grad: whether backward will follow.
        place: moves the tops of a layer without bottoms to the right device and layout.
        values: the blobs that some task will still read, detached.
        flows: edge → whether its diff leads to a trained parameter or a wanted diff.
        states: the leaves and tops of each task of layers, by block and part.
        saved: the tensors that other tasks save for later ones.
        diffs: the diffs of the segment's edges and inputs; ``None`` where nothing flows.
        start: returns the whole diff of an edge that later segments have computed.
        grads: the contributions to the gradients of parameters, by parameter and task.
        fresh: whether each parameter had no gradient before.
        plan: the tasks of the segment.
        weights: the copies of parameters by which the layers compute.
        update: applies gradients; ``None``: this pass does not update.
    """

    grad: bool = True
    place: Callable[[Tensor], Tensor] = lambda tensor: tensor
    values: dict[Key, Tensor | None] = field(default_factory=dict)
    flows: dict[int, bool] = field(default_factory=dict)
    states: dict[Key, SegmentState] = field(default_factory=dict)
    saved: dict[tuple[str | int, ...], Tensor] = field(default_factory=dict)
    diffs: dict[Key, Tensor | None] = field(default_factory=dict)
    start: Callable[[int], Tensor | None] = lambda edge: None
    grads: dict[Key, Tensor | None] = field(default_factory=dict)
    fresh: dict[int, bool] = field(default_factory=dict)
    plan: object = None
    weights: Weights = field(default_factory=dict)
    update: Update | None = None
    _buffers: dict[tuple[str | int, ...], Tensor] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def buffer(self, key: tuple[str | int, ...], make: Callable[[], Tensor]) -> Tensor:
        """Return the memory that several tasks fill together; the first task makes it."""
        with self._lock:
            if key not in self._buffers:
                self._buffers[key] = make()
            return self._buffers[key]

    def whole(self, edge: int) -> Tensor:
        """Return the blob of all samples of an edge."""
        value = self.values[edge, WHOLE]
        assert value is not None, edge
        return value

    def used(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return what the layers use in place of ``parameter``."""
        return self.weights.get(id(parameter), parameter)

    def forget(self) -> None:
        """Drop what no task will read any more."""
        self.values.clear()
        self._buffers.clear()


def like(shape: tuple[int, ...], model: Tensor) -> Tensor:
    """Return memory of ``shape``, laid out as ``model`` is."""
    return torch.empty(shape, dtype=model.dtype, device=model.device, memory_format=format_of(model))
