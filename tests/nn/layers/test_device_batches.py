"""Batches that are copied to a pretended GPU ahead of their use, on a stream of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from bpt.data import device_batches
from bpt.data.device_batches import DeviceBatches
from bpt.graph.share import Share
from tests.support.data_readers import Make, data
from tests.support.fake_cuda import FakeCuda, pretended_cuda

MINUTE = 60.0
CUDA = torch.device("cuda", 0)
ROW = torch.arange(3.0)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    with pretended_cuda() as cuda:

        def to_device(top: Tensor, device: torch.device) -> Tensor:
            assert device == CUDA
            copy = torch.full_like(top, -1)  # what a net sees that reads too early
            cuda.launch(lambda: copy.copy_(top))
            return copy

        monkeypatch.setattr(device_batches, "to_device", to_device)
        yield cuda


def test_the_computing_stream_waits_and_the_host_does_not(cuda: FakeCuda) -> None:
    bus_may_go_on = threading.Event()
    batches = DeviceBatches(lambda position: (ROW + position,), CUDA)
    cuda.streams[-1].enqueue(lambda: bus_may_go_on.wait(MINUTE))
    batch = batches(10)
    (top,) = batch.take()
    seen: list[list[float]] = []
    cuda.launch(lambda: seen.append(top.tolist()))
    done = cuda.new_event(blocking=True)
    done.record(cuda.default)
    assert cuda.calls == ["record e0 on s1", "default waits for e0", "record e1 on default"]
    assert seen == []
    bus_may_go_on.set()
    done.synchronize()
    assert seen == [[10, 11, 12]]
    batches.close()


def test_a_later_batch_is_copied_while_the_net_computes(cuda: FakeCuda) -> None:
    kernel_may_end = threading.Event()
    batches = DeviceBatches(lambda position: (ROW + position,), CUDA)
    batches(0).take()
    cuda.launch(lambda: kernel_may_end.wait(MINUTE))
    later = batches(1)
    later.copied.wait()  # though the computing stream is busy
    assert later.tops[0].tolist() == [1, 2, 3]
    kernel_may_end.set()
    batches.close()


def test_an_error_of_the_copy_is_that_of_the_batch(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(top: Tensor, device: torch.device) -> Tensor:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(device_batches, "to_device", broken)
    batches = DeviceBatches(lambda position: (ROW,), CUDA)
    with pytest.raises(RuntimeError, match="out of memory"):
        batches(0).take()


def test_what_is_copied_is_in_pinned_memory(reader: Make, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From other memory the copy would stop the host until all kernels before it have ended."""
    pinned: list[Tensor] = []
    copied: list[bool] = []
    real = torch.empty

    def empty(*shape: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        made = real(*shape, **options)
        pinned.extend([made] * pin_memory)
        return made

    def to_device(top: Tensor, device: torch.device) -> Tensor:
        copied.append(any(top is each for each in pinned))
        return top

    with pretended_cuda():
        monkeypatch.setattr(torch, "empty", empty)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(device_batches, "to_device", to_device)
        read = reader(data(images, "shuffle: true"), Share(start=3, count=2, total=4))
        read.layer.prefetch_to(CUDA)
        for _ in range(3):
            read.next()
        read.net.close()
    assert len(copied) >= 6
    assert all(copied)


def test_a_data_layer_gives_the_batches_that_it_gives_on_a_cpu(reader: Make, images: str, cuda: FakeCuda) -> None:
    text = data(images, "shuffle: true")
    plain, copied = reader(text), reader(text)
    plain.next(), copied.next()
    copied.layer.prefetch_to(CUDA)
    for _ in range(3):
        expected, found = plain.next(), copied.next()
        cuda.current_stream().enqueue(lambda: None)
        event = cuda.new_event(blocking=True)
        event.record(cuda.default)
        event.synchronize()
        assert all(map(torch.equal, found, expected))
    assert copied.layer.position == plain.layer.position
    copied.layer.position = 0
    assert copied.layer.position == 0
    copied.net.close()
    for thread in threading.enumerate():
        if thread.name.startswith("H2D batches"):
            thread.join(MINUTE)
            assert not thread.is_alive()
