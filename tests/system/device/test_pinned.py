"""Page-locked memory; CUDA's runtime is pretended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from bpt.system.device import CPU, pin

CUDA = torch.device("cuda", 1)
MEMORY = torch.zeros(2**18)  # 1 MiB


class FakeRuntime:
    """Notes what is called, and answers with ``code``; a kernel tells of the error that it has kept, and drops it."""

    def __init__(self, code: int) -> None:
        self.code, self.kept = code, 0
        self.calls: list[tuple[object, ...]] = []
        self._device: torch.device | None = None

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self._device = device
        yield
        self._device = None

    def cudaHostRegister(self, pointer: int, size: int, flags: int) -> int:  # noqa: N802
        self.calls.append(("register", self._device, pointer, size, flags))
        self.kept = self.code
        return self.code

    def cudaHostUnregister(self, pointer: int) -> int:  # noqa: N802
        self.calls.append(("unregister", self._device, pointer))
        self.kept = self.code
        return self.code

    def empty(self, elements: int, device: torch.device) -> SimpleNamespace:
        assert device == CUDA
        return SimpleNamespace(fill_=self._kernel)

    def _kernel(self, value: int) -> None:
        kept, self.kept = self.kept, 0
        if kept:
            raise RuntimeError(f"CUDA error {kept}")


@pytest.fixture
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    runtime = FakeRuntime(getattr(request, "param", 0))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device", runtime.device)
    monkeypatch.setattr(torch, "empty", runtime.empty)
    return runtime


def test_memory_is_page_locked_until_that_is_undone(runtime: FakeRuntime, caplog: pytest.LogCaptureFixture) -> None:
    undo = pin(MEMORY, CUDA)
    assert runtime.calls == [("register", CUDA, MEMORY.data_ptr(), 2**20, 0)]
    undo()
    assert runtime.calls[1:] == [("unregister", CUDA, MEMORY.data_ptr())]
    assert caplog.messages == []


def test_part_of_a_tensor(runtime: FakeRuntime) -> None:
    pin(MEMORY[16:48].view(4, 8), CUDA)
    assert runtime.calls == [("register", CUDA, MEMORY.data_ptr() + 64, 128, 0)]


def test_nothing_to_do(runtime: FakeRuntime) -> None:
    pin(MEMORY, CPU)()
    pin(MEMORY[:0], CUDA)()
    assert runtime.calls == []


@pytest.mark.parametrize("runtime", [2], indirect=True)
def test_what_cannot_be_page_locked_is_used_as_it_is(runtime: FakeRuntime, caplog: pytest.LogCaptureFixture) -> None:
    undo = pin(MEMORY, CUDA)
    assert caplog.record_tuples == [
        (
            "bpt",
            logging.WARNING,
            "1.0 MiB of host memory could not be page-locked (CUDA error 2), so copies between it and cuda:1 will be "
            "slower; raise the limit of locked memory (ulimit -l unlimited)",
        )
    ]
    assert runtime.kept == 0  # the next kernel is not said to fail
    undo()
    assert len(runtime.calls) == 1


@pytest.mark.parametrize("runtime", [712], indirect=True)
def test_what_is_page_locked_already_stays_so(runtime: FakeRuntime, caplog: pytest.LogCaptureFixture) -> None:
    pin(MEMORY, CUDA)()
    assert [call[0] for call in runtime.calls] == ["register"]
    assert caplog.messages == []
    assert runtime.kept == 0


def test_undoing_never_fails(runtime: FakeRuntime) -> None:
    undo = pin(MEMORY, CUDA)
    runtime.code = 713
    undo()
    assert runtime.kept == 0


@pytest.mark.parametrize("memory", [MEMORY[::2], MEMORY.to("meta")])
def test_what_is_no_host_memory_in_one_piece_is_refused(memory: torch.Tensor, runtime: FakeRuntime) -> None:
    with pytest.raises(AssertionError):
        pin(memory, CUDA)


def test_a_cpu_never_asks_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cuda() -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "cudart", no_cuda)
    pin(MEMORY, CPU)()
