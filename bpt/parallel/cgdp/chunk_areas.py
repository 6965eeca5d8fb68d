"""Gradient areas: the places of gradients in host memory, which cannot be read too early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bpt.system.device import Stream, StreamEvent

ALIGNMENT = 64  # bytes: a cache line, so that nobody writes where another one reads


class ElementRange(NamedTuple):
    """The elements ``[start, stop)`` of an area."""

    start: int
    stop: int


class Layout:
    """The places of the parameters' gradients in an area: one behind the other, in the order of the net.

    As the order is the net's, the gradients of a chunk are one run, whatever the chunks are.

    Args:
        parameters: the same on all ranks.
        dtype: of the elements; by default those of the parameters.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype or parameters[0].dtype
        step = ALIGNMENT // self.dtype.itemsize
        self._starts: dict[int, int] = {}
        self.elements = 0
        for parameter in parameters:
            self._starts[id(parameter)] = self.elements
            self.elements += -(-parameter.numel() // step) * step

    @property
    def nbytes(self) -> int:
        """The bytes of an area."""
        return self.elements * self.dtype.itemsize

    def start(self, parameter: nn.Parameter) -> int:
        """Return the first element of ``parameter``'s gradient in an area."""
        return self._starts[id(parameter)]

    def view(self, area: Tensor, parameter: nn.Parameter) -> Tensor:
        """Return the place of ``parameter``'s gradient in an area, in the parameter's shape."""
        start = self._starts[id(parameter)]
        return area[start : start + parameter.numel()].view(parameter.shape)

    def runs(self, parameters: Sequence[nn.Parameter]) -> tuple[ElementRange, ...]:
        """Return where the gradients of ``parameters`` are, in as few runs as possible."""
        step = ALIGNMENT // self.dtype.itemsize
        runs: list[ElementRange] = []
        for parameter in sorted(parameters, key=lambda p: self._starts[id(p)]):
            start = self._starts[id(parameter)]
            stop = start + -(-parameter.numel() // step) * step
            if runs and runs[-1].stop == start:
                start = runs.pop().start
            runs.append(ElementRange(start, stop))
        return tuple(runs)


class HostCopies:
    """Gradients that are being copied into an area; they can be read only after all copies are done.

    Made by ``GuardedArea.write``. The paper's Step B-2-0-1 is there for this; here nobody can forget it.
    """

    def __init__(self, memory: Tensor, runs: Sequence[ElementRange], event: StreamEvent) -> None:
        self._memory = memory
        self._runs = runs
        self._event = event

    def wait(self) -> None:
        """Wait until all copies are done; raise the error of a failed one."""
        self._event.wait()

    def elements(self, run: ElementRange) -> Tensor:
        """Return the elements of ``run``, once all copies are done."""
        assert any(written.start <= run.start and run.stop <= written.stop for written in self._runs)
        self.wait()
        return self._memory[run.start : run.stop]


class ArrivedGradients:
    """Another rank's gradients of a piece; they can be read only after that rank has told that they have arrived.

    Made by ``ForeignArea.read_after``.
    """

    def __init__(self, memory: Tensor, wait: Callable[[], None]) -> None:
        self._memory = memory
        self._wait = wait

    def elements(self, run: ElementRange) -> Tensor:
        """Return the elements of ``run``, once they have arrived."""
        self._wait()
        return self._memory[run.start : run.stop]


class ForeignArea:
    """The gradient area of another rank of this host; it is read by ``ArrivedGradients`` alone.

    Args:
        memory: flat, shared with the other rank.
    """

    def __init__(self, memory: Tensor) -> None:
        self._memory = memory

    def read_after(self, wait: Callable[[], None]) -> ArrivedGradients:
        """Return a reader.

        Args:
            wait: returns once the gradients have arrived.
        """
        return ArrivedGradients(self._memory, wait)


class GuardedArea:
    """The gradient area of this rank, which the D2H stream writes; what it holds is read by ``HostCopies`` alone.

    The areas of the other ranks are ``ForeignArea``.

    Args:
        memory: flat, on the host.
        layout: where gradients stand in it.
    """

    def __init__(self, memory: Tensor, layout: Layout) -> None:
        self._memory = memory
        self._layout = layout

    def write(
        self, stream: Stream, parameters: Sequence[nn.Parameter], during: Callable[[], AbstractContextManager[None]]
    ) -> HostCopies:
        """Let ``stream`` copy the gradients of ``parameters`` here; those that have none count as zeros.

        Args:
            during: a context for the copies.
        """
        # The tensors, not the parameters: these may get others before the stream is there.
        copies = [(self._layout.view(self._memory, parameter), parameter.grad) for parameter in parameters]

        def copy() -> None:
            with during():
                for place, gradient in copies:
                    _ = place.zero_() if gradient is None else place.copy_(gradient, non_blocking=True)

        return HostCopies(self._memory, self._layout.runs(parameters), stream.submit(copy))


def tensor_of(memory: object, dtype: torch.dtype) -> Tensor:
    """Return a flat tensor of ``dtype`` on the bytes of a window."""
    return torch.frombuffer(memory, dtype=dtype) if len(memory) else torch.empty(0, dtype=dtype)  # type: ignore[arg-type]
