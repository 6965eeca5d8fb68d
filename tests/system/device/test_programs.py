"""Random programs over several streams: nothing begins before what it must come after, and nothing waits for more."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.system.device import CPU, Stream, StreamEvent, computing_stream, new_stream
from tests.support.fake_cuda import FakeCuda, pretended_cuda

MINUTE = 60.0
CUDA = torch.device("cuda", 0)

MAKE: dict[str, Callable[[], Stream]] = {
    "null": lambda: computing_stream(CPU),
    "thread": lambda: new_stream(CPU, "thread"),
    "current": lambda: computing_stream(CUDA),
    "side": lambda: new_stream(CUDA, "side"),
}


class Step(NamedTuple):
    """Of a program: "run", "record", or "after" the ``event``-th event recorded so far (counted round and round)."""

    act: str
    stream: int
    event: int


PROGRAMS = st.lists(
    st.builds(Step, st.sampled_from(["run", "run", "record", "after", "after"]), st.integers(0, 2), st.integers(0, 99)),
    min_size=4,
    max_size=25,
)


class Model:
    """What must come before what, worked out step by step without any stream.

    Attributes:
        before: for each work what must have ended when it begins.
        suffices: for each work what must have ended so that it does begin, though no other work goes on. On CUDA that
            can be more: a thread that waits for an event of the host enqueues nothing meanwhile.
        reached: for each event what must have ended when it is reached.
    """

    def __init__(self, program: Sequence[Step], kinds: Sequence[str]) -> None:
        self.before: list[set[int]] = []
        self.suffices: list[set[int]] = []
        self.reached: list[set[int]] = []
        recorded: list[set[int]] = []  # what must have ended so that a stream's thread comes to record the event
        caller: set[int] = set()  # what the caller has waited for
        done: list[set[int]] = [set() for _ in kinds]  # what must have ended before the stream does what comes next
        fed: list[set[int]] = [set() for _ in kinds]  # ... before its thread enqueues it
        for act, at, number in program:
            on_host = kinds[at] in ("null", "thread")
            if act == "run":
                self.before.append(done[at] | caller)
                self.suffices.append(done[at] | caller | fed[at])
                done[at] = done[at] | caller | {len(self.before) - 1}
            elif act == "record":
                self.reached.append(set() if kinds[at] == "null" else done[at] | caller)
                recorded.append(caller | (fed[at] if kinds[at] == "side" else set()))
                if kinds[at] == "thread":
                    recorded[-1] = self.reached[-1]
            elif self.reached:
                number %= len(self.reached)
                done[at] = done[at] | self.reached[number]
                fed[at] = fed[at] | (self.reached if on_host else recorded)[number]
            if kinds[at] == "null":
                caller |= done[at]
            if kinds[at] == "current":
                caller |= fed[at]


class Play:
    """Work that notes when it begins, and ends when it is told to."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._change = threading.Condition()
        self._begun: set[int] = set()
        self._told: set[int] = set()
        self._ended: set[int] = set()
        self._too_early: list[int] = []
        self.events: list[StreamEvent] = []

    def work(self, number: int) -> None:
        with self._change:
            if not self._model.before[number] <= self._ended:
                self._too_early.append(number)
            self._begun.add(number)
            self._change.notify_all()
            self._change.wait_for(lambda: number in self._told, MINUTE)
            self._ended.add(number)
            self._change.notify_all()

    def direct(self, order: random.Random) -> None:
        """Let one work at a time end, any that has begun; before each, all have begun that need nothing more."""
        everything = range(len(self._model.before))
        with self._change:
            for _ in everything:
                able = {number for number in everything if self._model.suffices[number] <= self._ended}
                assert self._change.wait_for(lambda able=able: able <= self._begun, MINUTE), able - self._begun  # type: ignore[misc]
                chosen = order.choice(sorted(self._begun - self._ended))
                self._told.add(chosen)
                self._change.notify_all()
                assert self._change.wait_for(lambda chosen=chosen: chosen in self._ended, MINUTE)  # type: ignore[misc]
                self.look_at_events()
            assert self._too_early == []

    def look_at_events(self) -> None:
        for number, event in enumerate(self.events):
            if event.done():
                assert self._model.reached[number] <= self._ended, f"event {number}"


Launch = Callable[[Callable[[], None]], None]


def submit(program: Sequence[Step], streams: Sequence[Stream], play: Play, launch: Sequence[Launch]) -> None:
    works = 0
    for act, at, number in program:
        if act == "run":
            streams[at].run(partial(launch[at], partial(play.work, works)))
            works += 1
        elif act == "record":
            play.events.append(streams[at].record())
        elif play.events:
            streams[at].after(play.events[number % len(play.events)])


def at_once(work: Callable[[], None]) -> None:
    work()


def perform(program: Sequence[Step], kinds: Sequence[str], cuda: FakeCuda, seed: int) -> None:
    model = Model(program, kinds)
    play = Play(model)
    streams = [MAKE[kind]() for kind in kinds]
    launch = [cuda.launch if kind in ("current", "side") else at_once for kind in kinds]
    # A thread submits, as a null stream's work does not return before it is told to.
    submitter = threading.Thread(target=submit, args=(program, streams, play, launch), daemon=True)
    submitter.start()
    play.direct(random.Random(seed))
    submitter.join(MINUTE)
    assert not submitter.is_alive()
    for event in play.events:
        event.wait()
        assert event.done()
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    "kinds",
    [
        ("thread", "thread", "thread"),
        ("null", "thread", "thread"),
        ("side", "side", "side"),
        ("current", "side", "side"),
        ("current", "side", "thread"),
    ],
    ids=" ".join,
)
def test_what_must_come_before_comes_before(kinds: tuple[str, ...]) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(PROGRAMS, st.integers(0, 2**32))
    def every_program(program: list[Step], seed: int) -> None:
        with pretended_cuda() as cuda:
            perform(program, kinds, cuda, seed)

    every_program()


def test_the_model() -> None:
    """By hand: 0 on stream 0; 1 on stream 1 after it; 2 there; 3 on stream 2 after no one; 4 there after 0 to 2."""
    run, record, after = (partial(Step, act) for act in ("run", "record", "after"))
    program = [run(0, 0), record(0, 0), after(1, 0), run(1, 0), run(1, 0), record(1, 0)]
    program += [run(2, 0), after(2, 1), run(2, 0)]
    model = Model(program, ("thread", "thread", "thread"))
    assert model.before == model.suffices == [set(), {0}, {0, 1}, set(), {0, 1, 2, 3}]
    assert model.reached == [{0}, {0, 1, 2}]
    # A null stream's work is done before anything that follows in the program.
    model = Model(program, ("null", "thread", "thread"))
    assert model.before == [set(), {0}, {0, 1}, {0}, {0, 1, 2, 3}]
    # The device waits for the device's events, the threads do not.
    model = Model(program, ("current", "side", "side"))
    assert model.before == model.suffices == [set(), {0}, {0, 1}, set(), {0, 1, 2, 3}]
    # A side stream that waits for the host enqueues nothing, nor records.
    program = [run(0, 0), record(0, 0), after(1, 0), run(1, 0), record(1, 0), after(2, 1), run(2, 0)]
    model = Model(program, ("thread", "side", "current"))
    assert model.before == model.suffices == [set(), {0}, {0, 1}]
    model = Model([*program[:5], run(2, 0), after(2, 1), run(2, 0)], ("thread", "side", "current"))
    assert model.before == model.suffices == [set(), {0}, set(), {0, 1, 2}]
