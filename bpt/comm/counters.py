"""Counters: what went between ranks and how long it took, by instruction and method."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Traffic:
    """Totals of one method during one instruction, on this rank.

    Bytes are payload by the plain algorithm, each message counted once on either side: a Bcast of n bytes to 3
    others is 3 n sent by the root and n received by each. What a library does instead (trees, rings) moves as
    much in other ways. An Allreduce counts as a ring's: 2 n (P - 1) / P each way.
    """

    calls: int = 0
    sent: int = 0  # bytes
    received: int = 0  # bytes
    seconds: float = 0.0  # in the call: transfer, and waiting for the other ranks

    def __iadd__(self, other: Traffic) -> Traffic:
        self.calls += other.calls
        self.sent += other.sent
        self.received += other.received
        self.seconds += other.seconds
        return self


class Counters:
    """Shared by a communicator and all that were made from it; safe for threads.

    ``during`` names the instruction that the calling thread works on; each thread has its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local = threading.local()
        self._traffic: dict[tuple[str, str], Traffic] = {}

    @contextmanager
    def during(self, instruction: str) -> Iterator[None]:
        """Count what the calling thread does inside under this name."""
        before = self.instruction
        self._local.instruction = instruction
        try:
            yield
        finally:
            self._local.instruction = before

    @property
    def instruction(self) -> str:
        """What the calling thread works on; "" outside of ``during``."""
        return getattr(self._local, "instruction", "")

    @contextmanager
    def call(self, method: str, sent: int, received: int, calls: int = 1) -> Iterator[None]:
        """Time one call of ``method`` and count it; with ``calls`` 0 it continues one that was counted before."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(method, Traffic(calls, sent, received, time.perf_counter() - start))

    def add(self, method: str, traffic: Traffic) -> None:
        """Count ``traffic`` under the calling thread's instruction."""
        key = self.instruction, method
        with self._lock:
            entry = self._traffic.setdefault(key, Traffic())
            entry += traffic

    def take(self) -> dict[tuple[str, str], Traffic]:
        """(instruction, method) → totals since the last call."""
        with self._lock:
            traffic, self._traffic = self._traffic, {}
        return traffic

    def total(self) -> Traffic:
        """The sum of all since the last ``take``."""
        result = Traffic()
        with self._lock:
            for entry in self._traffic.values():
                result += entry
        return result
