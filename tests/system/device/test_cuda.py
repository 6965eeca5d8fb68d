"""Streams and events of a pretended CUDA device: who waits for what, and in which order it is told to the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from bpt.base.errors import RunError
from bpt.system.device import CPU, computing_stream, new_stream
from tests.support.fake_cuda import FakeCuda, FakeEvent, FakeStream, pretended_cuda

MINUTE = 60.0
CUDA = torch.device("cuda", 0)


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with pretended_cuda() as cuda:
        yield cuda


def test_the_device_waits_and_not_the_host(cuda: FakeCuda) -> None:
    computing, d2h = computing_stream(CUDA), new_stream(CUDA, "D2H")
    done: list[str] = []
    kernel_may_end = threading.Event()
    computing.run(lambda: cuda.launch(lambda: kernel_may_end.wait(MINUTE) and done.append("kernel")))
    d2h.after(computing.record())
    d2h.run(lambda: cuda.launch(lambda: done.append("copy")))
    copied = d2h.record()
    computing.after(copied)
    computing.run(lambda: cuda.launch(lambda: done.append("update")))
    updated = computing.record()
    # The host has come through while the kernel still runs, and the device knows what to wait for.
    assert cuda.calls == [
        "record e0 on default", "s1 waits for e0", "record e1 on s1", "default waits for e1", "record e2 on default"
    ]  # fmt: skip
    assert done == []
    assert not copied.done()
    kernel_may_end.set()
    updated.wait()
    assert done == ["kernel", "copy", "update"]
    assert copied.done()
    assert cuda.calls[5:] == ["host waits for e2"]
    d2h.close()


def test_submit_is_run_and_record_in_one(cuda: FakeCuda) -> None:
    d2h = new_stream(CUDA, "D2H")
    d2h.submit(lambda: cuda.calls.append("copy")).wait()
    assert cuda.calls == ["copy", "record e0 on s1", "host waits for e0"]
    computing_stream(CUDA).submit(lambda: cuda.calls.append("kernel"))
    assert cuda.calls[3:] == ["kernel", "record e1 on default"]
    d2h.close()


def test_without_after_the_copy_comes_too_early(cuda: FakeCuda) -> None:
    computing, d2h = computing_stream(CUDA), new_stream(CUDA, "D2H")
    done: list[str] = []
    kernel_may_end = threading.Event()
    computing.run(lambda: cuda.launch(lambda: kernel_may_end.wait(MINUTE) and done.append("kernel")))
    made = computing.record()
    d2h.run(lambda: cuda.launch(lambda: done.append("copy")))
    d2h.record().wait()
    assert done == ["copy"]
    assert not made.done()
    kernel_may_end.set()
    made.wait()
    d2h.close()


def test_an_event_that_its_thread_has_not_recorded_is_not_reached(cuda: FakeCuda) -> None:
    """The device says that such an event is reached."""
    d2h, h2d = new_stream(CUDA, "D2H"), new_stream(CUDA, "H2D")
    may_go_on = threading.Event()
    d2h.run(lambda: assert_(may_go_on.wait(MINUTE)))
    event = d2h.record()
    h2d.after(event)
    h2d.run(lambda: cuda.calls.append("copy"))
    copied = h2d.record()
    assert not event.done()
    assert not copied.done()
    assert cuda.calls == []
    may_go_on.set()
    copied.wait()
    assert event.done()
    assert cuda.calls == ["record e0 on s1", "s2 waits for e0", "copy", "record e1 on s2", "host waits for e1"]
    d2h.close()
    h2d.close()


def assert_(holds: bool) -> None:
    assert holds


def test_an_event_counts_as_recorded_only_afterwards(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    record, d2h, seen = FakeEvent.record, new_stream(CUDA, "D2H"), []
    told = threading.Event()

    def look(self: FakeEvent, stream: FakeStream) -> None:
        assert told.wait(MINUTE)
        seen.append(event.done())
        record(self, stream)

    monkeypatch.setattr(FakeEvent, "record", look)
    d2h.run(lambda: None)
    event = d2h.record()
    told.set()
    event.wait()
    assert seen == [False]
    d2h.close()


def test_a_stream_of_the_device_waits_for_the_host(cuda: FakeCuda) -> None:
    host, h2d = new_stream(CPU, "sum"), new_stream(CUDA, "H2D")
    done: list[str] = []
    may_go_on = threading.Event()
    host.run(lambda: assert_(may_go_on.wait(MINUTE)))
    host.run(lambda: done.append("sum"))
    h2d.after(host.record())
    h2d.run(lambda: done.append("copy"))
    copied = h2d.record()
    may_go_on.set()
    copied.wait()
    assert done == ["sum", "copy"]
    assert cuda.calls == ["record e0 on s1", "host waits for e0"]
    host.after(copied)
    computing_stream(CUDA).after(host.record())  # waits here
    assert cuda.calls[2:] == ["host waits for e0"]
    host.close()
    h2d.close()


def test_work_enqueues_to_its_stream_in_a_thread_without_gradients(cuda: FakeCuda) -> None:
    d2h = new_stream(CUDA, "D2H")
    seen: list[object] = []
    for _ in range(2):
        d2h.run(
            lambda: seen.extend([cuda.current_stream().name, torch.is_grad_enabled(), threading.current_thread().name])
        )
    d2h.record().wait()
    assert seen == ["s1", False, f"D2H of {threading.current_thread().name}"] * 2
    assert cuda.current_stream() is cuda.default
    d2h.close()


def test_the_computing_stream_is_the_one_that_is_current(cuda: FakeCuda) -> None:
    computing, other = computing_stream(CUDA), cuda.new_stream(CUDA)
    with torch.cuda.stream(other):  # type: ignore[arg-type]
        event = computing.record()
    computing.after(event)
    assert cuda.calls == ["record e0 on s1", "default waits for e0"]
    computing.close()


def test_errors(cuda: FakeCuda) -> None:
    computing, d2h, host = computing_stream(CUDA), new_stream(CUDA, "D2H"), new_stream(CPU, "sum")
    error, done = KeyError("copy"), []

    def fail() -> None:
        raise error

    d2h.run(lambda: None)
    before = d2h.record()
    d2h.run(fail)
    failed = d2h.record()
    d2h.run(lambda: done.append(1))
    host.after(failed)
    for act in (failed.wait, d2h.record().wait, host.record().wait, lambda: computing.after(failed)):
        with pytest.raises(KeyError) as caught:
            act()
        assert caught.value is error
    assert failed.done()
    before.wait()
    with pytest.raises(KeyError):
        computing.run(fail)
    computing.record().wait()
    assert done == []
    host.close()


def test_a_stream_that_cannot_be_entered_fails(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stream: FakeStream) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "stream", broken)
    d2h = new_stream(CUDA, "D2H")
    d2h.run(lambda: None)
    with pytest.raises(RuntimeError, match="out of memory"):
        d2h.record().wait()


def test_the_end(cuda: FakeCuda) -> None:
    unused, closed, forgotten = (new_stream(CUDA, name) for name in ("unused", "closed", "forgotten"))
    assert unused.record().done()
    threads = []
    for stream in (closed, forgotten):
        stream.run(lambda: threads.append(threading.current_thread()))
        stream.record().wait()
    unused.close()
    closed.close()
    del stream, forgotten
    for thread in threads:
        thread.join(MINUTE)
        assert not thread.is_alive()
    with pytest.raises(RunError, match=f"^closed of {threading.current_thread().name}: closed before"):
        closed.record().wait()
