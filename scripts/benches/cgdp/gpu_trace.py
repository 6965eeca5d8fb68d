"""Traces of torch.profiler (Chrome's format): how much of the copying between device and host was hidden.

On a GPU the copies are the events "Memcpy DtoH" and "Memcpy HtoD" of the device, and what hides them are the kernels of
the computing stream: the one with the most kernel time. On a CPU, where the same program runs with threads for streams,
copies are what the threads named for D2H and H2D compute, and what hides them is what the main thread computes.
"""

from __future__ import annotations

import gzip
import json
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function

from bpt.system.device import synchronize

TRACED = 3  # iterations in a trace
DIRECTIONS = {"D2H": "DtoH", "H2D": "HtoD"}  # in names of threads; in names of copies
Event = Mapping[str, Any]
Span = tuple[float, float]  # start, end in microseconds


@dataclass(frozen=True)
class Copies:
    """Copies of one direction.

    Attributes:
        count: how many.
        seconds: that they take, one after the other.
        hidden: seconds of these that lie under what the computing stream computes.
    """

    count: int = 0
    seconds: float = 0.0
    hidden: float = 0.0

    @property
    def share(self) -> float:
        """Which part is hidden; 1 if there is nothing to hide."""
        return self.hidden / self.seconds if self.seconds else 1.0

    def __add__(self, other: Copies) -> Copies:
        return Copies(self.count + other.count, self.seconds + other.seconds, self.hidden + other.hidden)


def record(path: Path, step: Callable[[], object], device: torch.device) -> None:
    """Write a trace of TRACED iterations; ``.gz``: compressed."""
    synchronize(device)
    if device.type == "cuda":
        seen = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    else:  # the copying threads are none of those that torch looks at by itself
        everybody = _ExperimentalConfig(profile_all_threads=True)
        seen = profile(activities=[ProfilerActivity.CPU], experimental_config=everybody)
    with seen:
        for number in range(TRACED):
            with record_function(f"iteration {number}"):
                step()
        synchronize(device)
    seen.export_chrome_trace(str(path))
    name_threads(path, {thread.native_id: thread.name for thread in threading.enumerate() if thread.native_id})


def read_events(path: Path) -> list[Event]:
    """All events of a trace; ``.gz``: compressed."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(json.load(file)["traceEvents"])


def name_threads(path: Path, names: Mapping[int, str]) -> None:
    """Give threads in a trace the names that they have in Python, by the system's number of each."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        trace = json.load(file)
    for event in trace["traceEvents"]:
        if event.get("ph") == "M" and event["name"] == "thread_name" and event.get("tid") in names:
            event["args"]["name"] = names[event["tid"]]
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        json.dump(trace, file)


def has_kernels(events: Sequence[Event]) -> bool:
    """Whether a GPU has computed."""
    return any(event.get("cat") == "kernel" for event in events)


def copies_of(events: Sequence[Event]) -> dict[str, Copies]:
    """Direction ("D2H", "H2D") → its copies."""
    done = [event for event in events if event.get("ph") == "X"]
    kernels = [event for event in done if event.get("cat") == "kernel"]
    on_gpu = has_kernels(kernels)
    computing = merged(map(span, _most_busy_stream(kernels) if on_gpu else _of_main_thread(done)))
    return {
        direction: _hidden(merge_nested(_copying(done, events, direction, on_gpu), on_gpu), computing)
        for direction in DIRECTIONS
    }


def span(event: Event) -> Span:
    """When an event was."""
    return float(event["ts"]), float(event["ts"]) + float(event["dur"])


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of ``spans``, in order and without overlaps."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


def covered(one: Span, union: Sequence[Span]) -> float:
    """How much of ``one`` lies in ``union``, which is as ``merged`` gives it."""
    total = 0.0
    for start, end in union[max(0, bisect_right(union, (one[0], float("inf"))) - 1) :]:
        if start >= one[1]:
            break
        total += max(0.0, min(end, one[1]) - max(start, one[0]))
    return total


def merge_nested(copies: list[Event], on_gpu: bool) -> list[Span]:
    """When there was copying: each copy of a device; on a CPU calls inside of calls count once."""
    spans = [span(event) for event in copies]
    return spans if on_gpu else merged(spans)


def _hidden(copies: Sequence[Span], computing: Sequence[Span]) -> Copies:
    microsecond = 1e-6
    return Copies(
        len(copies),
        sum(end - start for start, end in copies) * microsecond,
        sum(covered(copy, computing) for copy in copies) * microsecond,
    )


def _copying(done: Sequence[Event], events: Sequence[Event], direction: str, on_gpu: bool) -> list[Event]:
    if on_gpu:
        word = DIRECTIONS[direction]
        return [event for event in done if event.get("cat") == "gpu_memcpy" and word in event["name"]]
    threads = {
        event["tid"]
        for event in events
        if event.get("ph") == "M" and event["name"] == "thread_name" and direction in event["args"]["name"]
    }
    return [event for event in done if event.get("cat") == "cpu_op" and event["tid"] in threads]


def _most_busy_stream(kernels: Sequence[Event]) -> list[Event]:
    seconds: dict[object, float] = {}
    for event in kernels:
        stream = event["args"]["stream"]
        seconds[stream] = seconds.get(stream, 0.0) + event["dur"]
    most = max(seconds, key=lambda stream: seconds[stream])
    return [event for event in kernels if event["args"]["stream"] == most]


def _of_main_thread(done: Sequence[Event]) -> list[Event]:
    """What the thread computes whose number is that of its process."""
    return [event for event in done if event.get("cat") == "cpu_op" and event["tid"] == event["pid"]]
