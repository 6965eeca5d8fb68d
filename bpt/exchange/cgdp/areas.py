"""Gradient areas: where gradients stand in host memory, and what keeps them from being read too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bpt.device import Event, Stream

ALIGNMENT = 64  # bytes: a cache line, so that nobody writes where another one reads


class Run(NamedTuple):
    """The elements ``[start, stop)`` of an area."""

    start: int
    stop: int


class Layout:
    """Where the gradient of each parameter stands in an area: one behind the other, in the order of the net.

    As the order is the net's, the gradients of a chunk are one run, whatever the chunks are.

    Args:
        parameters: of one dtype; the same on all ranks.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.dtype = parameters[0].dtype
        assert all(p.dtype == self.dtype for p in parameters)
        step = ALIGNMENT // self.dtype.itemsize
        self._starts: dict[int, int] = {}
        self.elements = 0
        for parameter in parameters:
            self._starts[id(parameter)] = self.elements
            self.elements += -(-parameter.numel() // step) * step

    @property
    def nbytes(self) -> int:
        """Bytes of an area."""
        return self.elements * self.dtype.itemsize

    def view(self, area: Tensor, parameter: nn.Parameter) -> Tensor:
        """The place of ``parameter``'s gradient in an area, in the parameter's shape."""
        start = self._starts[id(parameter)]
        return area[start : start + parameter.numel()].view(parameter.shape)

    def runs(self, parameters: Sequence[nn.Parameter]) -> tuple[Run, ...]:
        """Where the gradients of ``parameters`` stand, in as few runs as can be."""
        step = ALIGNMENT // self.dtype.itemsize
        runs: list[Run] = []
        for parameter in sorted(parameters, key=lambda p: self._starts[id(p)]):
            start = self._starts[id(parameter)]
            stop = start + -(-parameter.numel() // step) * step
            if runs and runs[-1].stop == start:
                start = runs.pop().start
            runs.append(Run(start, stop))
        return tuple(runs)


class GuardedArea:
    """The gradient area of this rank, which the D2H stream writes.

    Each run has an event that is reached when the copies into it are done, and ``read`` is the only way to the
    elements: it waits for that event. So nobody can read what a copy has not yet written (the paper's Step B-2-0-1
    is there for this); there is nothing to forget.

    Args:
        memory: flat, on the host.
        layout: where gradients stand in it.
    """

    def __init__(self, memory: Tensor, layout: Layout) -> None:
        self._memory = memory
        self._layout = layout
        self._written: dict[Run, Event] = {}

    def write(
        self, stream: Stream, parameters: Sequence[nn.Parameter], during: Callable[[], AbstractContextManager[None]]
    ) -> Event:
        """Let ``stream`` copy the gradients of ``parameters`` here; those that have none count as zeros.

        Returns:
            What is reached when the copies are done.

        Args:
            during: a context for the copies.
        """
        # The tensors, not the parameters: these may get others before the stream is there.
        copies = [(self._layout.view(self._memory, parameter), _gradient(parameter)) for parameter in parameters]

        def copy() -> None:
            with during():
                for place, gradient in copies:
                    _ = place.zero_() if gradient is None else place.copy_(gradient, non_blocking=True)

        event = stream.submit(copy)
        for run in self._layout.runs(parameters):
            self._written[run] = event
        return event

    def read(self, run: Run) -> Tensor:
        """The elements of ``run``, once all copies into it are done."""
        for written, event in list(self._written.items()):
            if written.start < run.stop and run.start < written.stop:
                event.wait()
        return self._memory[run.start : run.stop]

    def forget(self) -> None:
        """Nothing is on its way any more: other runs may be written from now on."""
        self._written.clear()


def _gradient(parameter: nn.Parameter) -> Tensor | None:
    return parameter.grad


def tensor_of(memory: object, dtype: torch.dtype) -> Tensor:
    """A flat tensor of ``dtype`` on the bytes of a window."""
    return torch.frombuffer(memory, dtype=dtype) if len(memory) else torch.empty(0, dtype=dtype)  # type: ignore[arg-type]
