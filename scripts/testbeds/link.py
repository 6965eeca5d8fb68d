"""The hosts' links: what ``--bandwidth 1gbit`` and ``--latency 1ms`` mean, and the words of ``tc`` for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bpt.base.errors import UsageError

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LEAST_RATE = 100_000  # bits/s: a few frames a second; slower is a typing error
_LEAST_BURST = 32 * 1024  # bytes: some frames even of a slow link
_QUEUE_SECONDS = 0.05  # what a switch holds before it drops


@dataclass(frozen=True)
class Link:
    """The cable from each host to the switch, the same for all; full duplex.

    Args:
        bandwidth: bits/s in each direction; ``None``: as fast as the kernel copies.
        latency: seconds from one host to another, one way; 0: what the kernel takes.
    """

    bandwidth: float | None = None
    latency: float = 0.0

    def shaper(self) -> list[str]:
        """The words of a token bucket (``tbf``) that lets ``bandwidth`` through."""
        assert self.bandwidth is not None
        # What may pass at once: a millisecond's worth, so that short messages see the rate, too.
        burst = max(_LEAST_BURST, round(self.bandwidth / 8 * 1e-3))
        queue = f"{_QUEUE_SECONDS * 1e3:g}ms"
        return ["tbf", "rate", f"{self.bandwidth:.0f}bit", "burst", f"{burst}b", "latency", queue]

    def delay(self) -> list[str]:
        """The words of a ``netem`` that delays by ``latency`` and never drops for lack of room."""
        return ["netem", "delay", f"{self.latency * 1e6:.0f}us", "limit", "1000000"]

    def __str__(self) -> str:
        bandwidth = "not limited" if self.bandwidth is None else _with_unit(self.bandwidth, _BITS)
        latency = "none added" if not self.latency else _with_unit(self.latency, _SECONDS)
        return f"bandwidth {bandwidth}, latency {latency}"


def parse_bandwidth(text: str) -> float:
    """Bits/s from ``1gbit``, ``100mbit`` or ``500kbit``.

    Raises:
        UsageError: the text says something else.
    """
    rate = _quantity(text, _BITS)
    if rate is None or rate < _LEAST_RATE:
        raise UsageError(f"--bandwidth: {text!r} is not a rate such as 1gbit or 100mbit (at least 100kbit)")
    return rate


def parse_latency(text: str) -> float:
    """Seconds from ``1ms``, ``200us`` or ``0.1s``.

    Raises:
        UsageError: the text says something else.
    """
    seconds = _quantity(text, _SECONDS)
    if seconds is None or not 1e-6 <= seconds <= 10:
        raise UsageError(f"--latency: {text!r} is not a time such as 1ms or 200us (1us to 10s)")
    return seconds


def _quantity(text: str, units: dict[str, float]) -> float | None:
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([a-z]+)", text.strip().lower(), re.ASCII)
    return float(found[1]) * units[found[2]] if found and found[2] in units else None


def _with_unit(value: float, units: dict[str, float]) -> str:
    """In the largest unit of which there is at least one."""
    unit, size = max((u for u in units.items() if u[1] <= value * (1 + 1e-9)), key=lambda u: u[1])
    return f"{value / size:g}{unit}"
