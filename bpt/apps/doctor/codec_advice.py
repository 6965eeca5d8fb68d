"""Advise for or against a codec of gradients by the measured links (the rule of thumb of docs/codecs.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.apps.doctor.findings import Finding, note, ok
from bpt.config.plan.run_plan import CompressionSpec
from bpt.perf.speeds.ping_pong import MeasuredLink

FAST = 600e6
"""Bytes a second, half of 10 Gbit/s. On faster links a codec takes longer than the bytes that it saves."""

SLOW = 25e6
"""Bytes a second, 200 Mbit/s. On slower links TOPK or POWERSGD are worth their own time."""

SHORT = 5e-3
"""Seconds of a message that no codec shortens by much, because of the latency."""


def codec_advice(
    compression: CompressionSpec, nbytes: int, hosts: Sequence[str], links: Sequence[MeasuredLink]
) -> Iterator[Finding]:
    """Yield advice about the codec.

    Args:
        compression: the settings of the run.
        nbytes: the bytes of gradients that a rank sums in each iteration.
        hosts: the host of each rank.
        links: the measured links.
    """
    between = [link.bandwidth for link in links if hosts[link.one] != hosts[link.other]]
    if not between or not nbytes:
        return
    slowest, number = min(between), len(set(hosts))
    seconds = 2 * (number - 1) / number * nbytes / slowest
    speed = f"{slowest / 1e6:.3g} MB/s between hosts"
    if slowest >= FAST or seconds < SHORT:
        why = f"at {speed} gradients travel in {seconds * 1e3:.2g} ms"
        if compression.name:
            yield note(
                f"{why}: codec: {compression.name} takes longer than it saves",
                "compression_param { codec: NONE }, unless bpt time shows that much of the exchange is exposed",
            )
        else:
            yield ok(f"{why}: codec: NONE is right")
    elif not compression.name:
        further = ", or TOPK or POWERSGD, which send far less" if slowest <= SLOW else ""
        yield note(
            f"at {speed} gradients take about {seconds:.2g} s an iteration, of which backward hides a part",
            f"compression_param {{ codec: BF16 }} halves them{further}; see docs/codecs.md, and what bpt time shows",
        )
    else:
        yield ok(f"codec: {compression.name} for {speed}")
