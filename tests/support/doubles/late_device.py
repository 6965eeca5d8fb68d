"""A CPU that behaves as a device that computes apart: what it copies to the host is there when a stream comes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from bpt.engine import graphed_compute
from bpt.system.device import host_copy
from bpt.system.device.cuda import CurrentStream
from bpt.train.runtime import parallel, updater
from tests.support.fake_cuda import FakeCuda, pretended_cuda

Work = Callable[[], Sequence[Tensor]]
Capture = Callable[[Work], tuple[Sequence[Tensor], Callable[[], object]]]


@contextmanager
def late_device(capture: Capture | None = None) -> Iterator[FakeCuda]:
    """Let training go on as on a GPU; gives the pretended device, whose ``calls`` tell who waited.

    Args:
        capture: captures passes; by default ``capture_graph``.
    """
    with pretended_cuda() as cuda, pytest.MonkeyPatch.context() as patch:

        def enqueue_copy(target: Tensor, source: Tensor) -> None:
            value = source.detach().clone()
            target.fill_(-1)  # what a host sees that reads too early
            cuda.launch(lambda: target.copy_(value))

        patch.setattr(host_copy, "enqueue_copy", enqueue_copy)
        patch.setattr(host_copy, "computing_stream", lambda device: CurrentStream(torch.device("cuda", 0)))
        for module in (parallel, updater):
            patch.setattr(module, "computes_apart", lambda device: True)
        patch.setattr(graphed_compute, "capture_graph", capture or capture_graph)
        yield cuda


def capture_graph(work: Work) -> tuple[Sequence[Tensor], Callable[[], object]]:
    """As CUDA graphs do: what ``work`` makes keeps its place, and a replay fills it from the same inputs.

    A real capture computes nothing; here the tensors hold NaN until the first replay.
    """
    made = [torch.full_like(tensor, torch.nan) for tensor in work()]

    def replay() -> None:
        for place, value in zip(made, work(), strict=True):
            place.copy_(value)

    return made, replay
