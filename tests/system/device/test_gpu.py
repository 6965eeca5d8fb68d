"""Streams, events and page-locked memory of a CUDA device."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from bpt.system.device import CPU, computing_stream, new_stream, pin

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda", 0)
LONG = 10**9  # cycles of the device: about half a second
ELEMENTS = 2**20


@pytest.fixture
def on_device() -> Tensor:
    """Zeros. Made, and all kernels loaded, before anything is under way, as either may wait for the device."""
    memory = torch.ones(ELEMENTS, device=CUDA)
    torch.add(memory, 1, out=memory)
    long_kernel(memory.mul_(2), 0, 1)
    torch.cuda.synchronize(CUDA)
    return memory


@pytest.fixture
def on_host() -> Iterator[Tensor]:
    memory = torch.full((ELEMENTS,), 7.0)
    undo = pin(memory, CUDA)
    yield memory
    torch.cuda.synchronize(CUDA)
    undo()


def long_kernel(memory: Tensor, value: float, cycles: int = LONG) -> None:
    """Enqueue: much later, ``memory`` is filled with ``value``."""
    torch.cuda._sleep(cycles)
    memory.fill_(value)


def copy(to: Tensor, source: Tensor) -> None:
    """Enqueue."""
    to.copy_(source, non_blocking=True)


def test_a_copy_waits_for_a_long_kernel(on_device: Tensor, on_host: Tensor) -> None:
    computing, d2h = computing_stream(CUDA), new_stream(CUDA, "D2H")
    computing.run(lambda: long_kernel(on_device, 1))
    d2h.after(computing.record())
    d2h.run(partial(copy, on_host, on_device))
    copied = d2h.record()
    copied.wait()
    assert copied.done()
    torch.testing.assert_close(on_host, torch.ones(ELEMENTS), rtol=0, atol=0)
    d2h.close()


def test_without_after_it_copies_too_early(on_device: Tensor, on_host: Tensor) -> None:
    """Copies go on while the device computes; so without the event they bring what was there before."""
    computing, d2h = computing_stream(CUDA), new_stream(CUDA, "D2H")
    d2h.run(lambda: None)
    d2h.record().wait()  # the thread is up
    for cycles in (LONG // 10, LONG, 10 * LONG):
        computing.run(partial(long_kernel, on_device, 1, cycles))
        made = computing.record()
        d2h.run(partial(copy, on_host, on_device))
        d2h.record().wait()
        if not made.done():  # else this host was too slow: once more with a longer kernel
            torch.testing.assert_close(on_host, torch.zeros(ELEMENTS), rtol=0, atol=0)
            break
        on_device.zero_()
        torch.cuda.synchronize(CUDA)
    else:
        pytest.fail("no copy went on while the device computed")
    made.wait()
    d2h.close()


def test_computing_waits_for_a_copy_and_the_host_does_not(on_device: Tensor, on_host: Tensor) -> None:
    computing, h2d = computing_stream(CUDA), new_stream(CUDA, "H2D")
    total = torch.empty_like(on_device)

    def add() -> None:
        torch.add(on_device, 1, out=total)

    def late_copy() -> None:
        torch.cuda._sleep(LONG)
        copy(on_device, on_host)

    h2d.run(late_copy)
    copied = h2d.record()
    computing.after(copied)
    computing.run(add)
    added = computing.record()
    assert not copied.done()
    assert not added.done()
    added.wait()
    assert copied.done()
    torch.testing.assert_close(total.cpu(), torch.full((ELEMENTS,), 8.0), rtol=0, atol=0)
    h2d.close()


def test_there_and_back_over_the_host(on_device: Tensor, on_host: Tensor) -> None:
    """The way of a gradient: down, changed by a host stream, up again, used; nobody but the host stream waits."""
    computing, host = computing_stream(CUDA), new_stream(CPU, "sum")
    d2h, h2d = new_stream(CUDA, "D2H"), new_stream(CUDA, "H2D")

    def accumulate() -> None:
        on_host.add_(100)

    def use() -> None:
        on_device.mul_(2)

    for turn in range(20):
        computing.run(partial(long_kernel, on_device, turn, LONG // 100))
        d2h.after(computing.record())
        d2h.run(partial(copy, on_host, on_device))
        host.after(d2h.record())
        host.run(accumulate)
        h2d.after(host.record())
        h2d.run(partial(copy, on_device, on_host))
        computing.after(h2d.record())
        computing.run(use)
        torch.testing.assert_close(on_device.cpu(), torch.full((ELEMENTS,), 2.0 * (turn + 100)), rtol=0, atol=0)
    for stream in (d2h, host, h2d):
        stream.close()


def test_errors() -> None:
    computing, d2h = computing_stream(CUDA), new_stream(CUDA, "D2H")

    def fail() -> None:
        torch.cuda._sleep(1)
        raise KeyError("copy")

    d2h.run(fail)
    event = d2h.record()
    for act in (event.wait, lambda: computing.after(event)):
        with pytest.raises(KeyError, match="copy"):
            act()
    assert torch.ones(3, device=CUDA).sum().item() == 3  # the device goes on


def test_work_runs_on_a_stream_of_its_own() -> None:
    d2h, h2d = new_stream(CUDA, "D2H"), new_stream(CUDA, "H2D")
    seen: list[object] = []
    for stream in (d2h, h2d):
        stream.run(lambda: seen.append(torch.cuda.current_stream(CUDA)))
        stream.record().wait()
    assert len({*seen, torch.cuda.current_stream(CUDA)}) == 3
    d2h.close()
    h2d.close()


def test_pin(caplog: pytest.LogCaptureFixture) -> None:
    memory = torch.zeros(ELEMENTS)
    assert not memory.is_pinned()
    undo = pin(memory, CUDA)
    assert memory.is_pinned()
    again = pin(memory, CUDA)
    assert torch.ones(3, device=CUDA).sum().item() == 3  # CUDA's complaint is not left for the next kernel
    again()
    assert memory.is_pinned()
    undo()
    assert not memory.is_pinned()
    pin(memory[:0], CUDA)()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_two_parts_of_one_memory(on_device: Tensor) -> None:
    """Areas that lie in one piece of shared memory, and share a page."""
    memory = torch.zeros(2 * ELEMENTS + 16)
    first, second = memory[: ELEMENTS + 16], memory[ELEMENTS + 16 :]
    undo = [pin(first, CUDA), pin(second, CUDA)]
    assert first.is_pinned()
    assert second.is_pinned()
    on_device.fill_(3)
    first[:ELEMENTS].copy_(on_device, non_blocking=True)
    second.copy_(on_device, non_blocking=True)
    torch.cuda.synchronize(CUDA)
    assert (first[:ELEMENTS].sum() + second.sum()).item() == 6 * ELEMENTS
    for each in undo:
        each()
