"""EventBus: what sinks are told, from several threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bpt.engine.instructions import ExchangeGradients, Forward, Send, Wait
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity, Event


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock shows its elements, one after the other."""
    shown: list[float] = []
    monkeypatch.setattr(time, "perf_counter", lambda: shown.pop(0))
    return shown


def test_an_instruction_and_the_calls_in_it(times: list[float]) -> None:
    """A call ends first; it belongs to what is innermost."""
    events = EventBus(rank=2)
    told: list[Any] = []
    events.add(told.append)
    times += [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    with events.during(Forward(3, 1)):
        with events.call("Allreduce", 8, 9):
            pass
        with events.part_of(ExchangeGradients(0), "conv/0"), events.call("Isend", 4, 0, peer=1):
            pass
    here = threading.current_thread().name
    assert told == [
        Event(Forward(3, 1), 2.0, 3.0, 2, here, "Allreduce", "", 1, 8, 9),
        Event(ExchangeGradients(0), 5.0, 6.0, 2, here, "Isend", "conv/0", 1, 4, 0, 1),
        Event(Forward(3, 1), 1.0, 7.0, 2, here),
    ]
    assert [(event.segment, event.micro) for event in told] == [(3, 1), (0, None), (3, 1)]
    assert str(told[-1].step) == "F3"


def test_what_a_segment_is_made_of_is_asked_for_at_the_end() -> None:
    events = EventBus()
    told: list[Any] = []
    events.add(told.append)
    names = {3: "conv"}
    with events.during(Forward(3), names.__getitem__), events.call("Send", 8, 0):
        names[3] = "conv … pool"
    with events.during(Wait(), names.__getitem__):
        pass
    assert [event.layers for event in told] == ["", "conv … pool", ""]


def test_instructions_nest_and_each_thread_has_its_own() -> None:
    events = EventBus()
    events.add(lambda event: None)
    seen = []
    with events.during(Forward(0)):
        with events.part_of(ExchangeGradients(0), "conv1"):
            assert events.what == ExchangeGradients(0)
            thread = threading.Thread(target=lambda: seen.append(events.what))
            thread.start()
            thread.join()
        assert events.what == Forward(0)
        with pytest.raises(KeyError), events.during(Activity.TEST):
            raise KeyError
        assert events.what == Forward(0)
    assert events.what is None
    assert seen == [None]


def test_what_fails_took_its_time(times: list[float]) -> None:
    events = EventBus()
    told: list[Any] = []
    events.add(told.append)
    events.before_end = lambda: pytest.fail("a device that has failed is not waited for")
    times += [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(KeyError), events.during(Wait()), events.call("Send", 8, 0):
        raise KeyError
    assert [(event.start, event.end, event.sent) for event in told] == [(2.0, 3.0, 8), (1.0, 4.0, 0)]


def test_before_an_instruction_ends(times: list[float]) -> None:
    """A device is waited for within its time, and not after a call."""
    events = EventBus()
    told: list[Any] = []
    events.add(told.append)
    times += [1.0, 2.0, 3.0, 4.0, 5.0]
    events.before_end = lambda: times.pop(0)
    with events.during(Send(0, 1)), events.call("Send", 8, 0):
        pass
    assert [(event.start, event.end) for event in told] == [(2.0, 3.0), (1.0, 5.0)]


def test_sinks_come_and_go() -> None:
    events = EventBus()
    first: list[Any] = []
    second: list[Any] = []
    with events.during(Forward(0)):  # nobody is there
        pass
    with events.into(first.append):
        with events.during(Forward(1)):
            pass
        sink = events.add(second.append)
        with events.during(Forward(2)):
            pass
    with events.during(Forward(3)):
        pass
    events.remove(sink)
    events.remove(sink)
    with events.during(Forward(4)):
        pass
    assert [event.segment for event in first] == [1, 2]
    assert [event.segment for event in second] == [2, 3]
    assert events.what is None


def test_sinks_are_called_by_one_thread_at_a_time() -> None:
    events = EventBus()
    total = 0

    def add(event: Event) -> None:
        nonlocal total
        before = total
        threading.Event().wait(0)  # lets another thread run
        total = before + event.sent

    events.add(add)

    def call() -> None:
        for _ in range(100):
            with events.call("Send", 1, 2):
                pass

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 400
