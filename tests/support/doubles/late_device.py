"""A CPU that behaves as a device that computes apart: what it copies to the host is there when a stream comes to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from bpt.system.device import host_copy
from bpt.system.device.cuda import CurrentStream
from bpt.train.runtime import updater
from tests.support.fake_cuda import FakeCuda, pretended_cuda


@contextmanager
def late_device() -> Iterator[FakeCuda]:
    """Let training read its losses as on a GPU; gives the pretended device, whose ``calls`` tell who waited."""
    with pretended_cuda() as cuda, pytest.MonkeyPatch.context() as patch:

        def enqueue_copy(target: Tensor, source: Tensor) -> None:
            value = source.detach().clone()
            target.fill_(-1)  # what a host sees that reads too early
            cuda.launch(lambda: target.copy_(value))

        patch.setattr(host_copy, "enqueue_copy", enqueue_copy)
        patch.setattr(host_copy, "computing_stream", lambda device: CurrentStream(torch.device("cuda", 0)))
        patch.setattr(updater, "computes_apart", lambda device: True)
        yield cuda
