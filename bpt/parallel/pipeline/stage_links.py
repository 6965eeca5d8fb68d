"""Links: blobs on their way between the stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.config.precision import array_of
from bpt.engine.instructions import Instruction
from bpt.parallel.model_parallel.split_layers import message
from bpt.system.comm.base import Communicator, Request
from bpt.system.comm.comm_thread import CommThread


@dataclass
class _Coming:
    """A blob that is being received."""

    request: Request
    buffer: Tensor


Channel = tuple[int, int]  # the other stage, tag


class StageLinks:
    """Sends and receives blobs while the stage computes.

    Messages of one channel (between two stages, under one tag) arrive in the order in which they were sent.

    Args:
        stages: the ranks of this pipeline, in order; only this object uses it, and ``close`` frees it.
    """

    def __init__(self, stages: Communicator) -> None:
        self.stages = stages
        self._comm_thread = CommThread(stages)
        self._leaving: list[Request] = []
        self._coming: dict[Channel, list[_Coming]] = {}

    def send(self, blob: Tensor, stage: int, tag: int, what: Instruction) -> None:
        """Start to send the elements of ``blob`` to another stage, which knows their number and type."""
        elements = message(blob)
        request = self.stages.Isend(elements, stage, tag)
        if not self.stages.concurrent:
            self._leaving = [earlier for earlier in self._leaving if not earlier.Test()]
            self._leaving.append(request)
            return
        # A library moves a long message on only while somebody is in a call of it.
        self._comm_thread.submit(partial(_wait, request, elements), what)

    def expect(self, elements: int, stage: int, tag: int, dtype: torch.dtype) -> None:
        """Start to receive a number of elements from another stage."""
        buffer = torch.empty(elements, dtype=dtype, device="cpu")
        request = self.stages.Irecv(array_of(buffer), stage, tag)
        self._coming.setdefault((stage, tag), []).append(_Coming(request, buffer))

    def expected(self, stage: int, tag: int) -> int:
        """Return how many blobs of this channel are awaited."""
        return len(self._coming.get((stage, tag), ()))

    def receive(self, stage: int, tag: int) -> Tensor:
        """Return the elements of the first expected blob of this channel; waits for them."""
        coming = self._coming[stage, tag].pop(0)
        coming.request.Wait()
        return coming.buffer

    def drop(self) -> None:
        """Receive all expected blobs, and drop them."""
        for channel in self._coming:
            while self.expected(*channel):
                self.receive(*channel)

    def wait(self) -> None:
        """Wait until all that was sent has left."""
        self._comm_thread.wait()
        for request in self._leaving:
            request.Wait()
        self._leaving.clear()

    def close(self, failed: bool = False) -> None:
        """End the thread that sends; a collective call, unless something ``failed``."""
        if not failed:
            self.drop()
            self.wait()
        self._comm_thread.close()
        if not failed:
            self.stages.Free()


def _wait(request: Request, elements: NDArray[Any]) -> None:
    """Wait for ``request``; keep ``elements`` alive until then."""
    request.Wait()
    del elements
