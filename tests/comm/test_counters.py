"""Counters: totals by instruction and method, from several threads."""

from __future__ import annotations

import threading

import pytest

from bpt.comm.counters import Counters, Traffic


def test_totals_by_instruction_and_method() -> None:
    counters = Counters()
    counters.add("Bcast", Traffic(1, 10, 20, 0.5))
    with counters.during("X0"):
        counters.add("Bcast", Traffic(1, 1, 2, 0.25))
        counters.add("Bcast", Traffic(1, 3, 4, 0.25))
        counters.add("Send", Traffic(1, 5, 0, 0.125))
    assert counters.total() == Traffic(4, 19, 26, 1.125)
    assert counters.take() == {
        ("", "Bcast"): Traffic(1, 10, 20, 0.5),
        ("X0", "Bcast"): Traffic(2, 4, 6, 0.5),
        ("X0", "Send"): Traffic(1, 5, 0, 0.125),
    }
    assert counters.take() == {}


def test_instructions_nest_and_each_thread_has_its_own() -> None:
    counters = Counters()
    seen = []
    with counters.during("F0"):
        with counters.during("F0 conv1"):
            assert counters.instruction == "F0 conv1"
            thread = threading.Thread(target=lambda: seen.append(counters.instruction))
            thread.start()
            thread.join()
        assert counters.instruction == "F0"
        with pytest.raises(KeyError), counters.during("F1"):
            raise KeyError
        assert counters.instruction == "F0"
    assert counters.instruction == ""
    assert seen == [""]


def test_a_call_that_fails_counts() -> None:
    counters = Counters()
    with pytest.raises(KeyError), counters.call("Send", 8, 0):
        raise KeyError
    assert counters.total().sent == 8


def test_no_thread_s_traffic_is_lost() -> None:
    counters = Counters()

    def count() -> None:
        for _ in range(1000):
            with counters.call("Send", 1, 2):
                pass

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = counters.total()
    assert (total.calls, total.sent, total.received) == (4000, 4000, 8000)
    assert total.seconds > 0
