"""FlightRecorder: what it keeps, in words, and where the training thread is."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from bpt.engine.instructions import ExchangeGradients, Forward, Wait
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity
from bpt.system.events.flight_recorder import WAIT, FlightRecorder

LAYERS = ["conv1", "conv2 … pool2"]


def recorder(kept: int = 16) -> tuple[EventBus, FlightRecorder]:
    flight = FlightRecorder(kept)
    return EventBus(0, flight), flight


def begun(flight: FlightRecorder, iteration: int) -> None:
    def names() -> Callable[[int], str]:
        return LAYERS.__getitem__

    flight.begin_iteration(iteration, names)


def test_the_last_are_kept_in_the_order_in_which_they_began() -> None:
    events, flight = recorder(4)
    begun(flight, 7)
    for segment in (0, 1):
        with events.during(Forward(segment)), events.call("Send", 8, 0, peer=3):
            pass
    with events.during(ExchangeGradients(1)):
        pass
    assert [flight.words(entry) for entry in flight.entries()] == [
        "Send with rank 3, F0 (conv1) in iteration 7",
        "F1 (conv2 … pool2) in iteration 7",
        "Send with rank 3, F1 (conv2 … pool2) in iteration 7",
        "X1 (conv2 … pool2) in iteration 7",
    ]
    head, *lines = flight.lines()
    assert head.split() == ["ms", "ago", "took", "ms", "thread", "what"]
    assert re.fullmatch(r" +\d+\.\d{3} +\d+\.\d{3}  MainThread +Send with rank 3, F0 \(conv1\) .*, 8 bytes", lines[0])


def test_nothing_listens_because_of_it() -> None:
    """Who listens makes a rank run forward and backward apart."""
    events, _ = recorder()
    assert not events.listens
    assert not EventBus().flight


def test_who_begins_to_listen_is_not_told_of_what_is_under_way() -> None:
    events, _ = recorder()
    told: list[object] = []
    with events.during(Forward(0)):
        events.add(lambda event: told.append(event.what))
        with events.during(Activity.WAIT_FOR_DATA):
            pass
    assert told == [Activity.WAIT_FOR_DATA]


def test_where_the_training_thread_is() -> None:
    events, flight = recorder()
    assert flight.position.words == "its start"
    begun(flight, 7)
    assert flight.position.words == "iteration 7, between two instructions"
    with events.during(Forward(1)):
        assert flight.position[:5] == (7, 1, "F1 (conv2 … pool2) in iteration 7", False, -1)
        assert not flight.position.disk
        with events.during(Activity.WAIT_FOR_DATA):
            assert flight.position.words == "wait for data in iteration 7"
            assert flight.position.disk
        with events.call("Recv", 0, 8, peer=3):
            assert flight.position[:5] == (7, 1, "Recv with rank 3, F1 (conv2 … pool2) in iteration 7", True, 3)
        assert flight.position[:5] == (7, 1, "F1 (conv2 … pool2) in iteration 7", False, -1)
    with pytest.raises(KeyError), events.during(Forward(0)):
        raise KeyError
    assert flight.position.words == "iteration 7, between two instructions"


def test_what_it_waits_for_in_another_thread_is_where_it_is() -> None:
    """Its number is that of the instruction which has started it, and its seconds those of the call."""
    events, flight = recorder()
    begun(flight, 3)
    with events.during(Activity.DISPLAY):  # of the first rank only: it is not counted
        pass
    is_in, may_end = threading.Event(), threading.Event()

    def communicate() -> None:
        with events.part_of(ExchangeGradients(1)), events.call("Allreduce", 8, 8):
            is_in.set()
            assert may_end.wait(60)

    thread = threading.Thread(target=communicate)
    for segment in (0, 1):
        with events.during(ExchangeGradients(segment)):
            pass
    thread.start()
    assert is_in.wait(60)
    with events.during(Forward(0)):
        assert flight.position.words == "F0 (conv1) in iteration 3"
    with events.during(Wait()), events.waiting(WAIT):
        assert flight.position[:5] == (3, 2, "Allreduce, X1 (conv2 … pool2) in iteration 3", True, -1)
        may_end.set()
        thread.join()
        position = flight.position
        assert (position.waits, position.words) == (False, "W in iteration 3")


def test_a_net_that_is_done_with_is_not_kept() -> None:
    events, flight = recorder()
    flight.begin_iteration(0, lambda: None)
    with events.during(Forward(1)):
        assert flight.position.words == "F1 in iteration 0"
