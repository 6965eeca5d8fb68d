"""Check the measured speeds of messages between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.apps.doctor.findings import Finding, Ranks, Section, note, ok, warning
from bpt.base.log import columns
from bpt.perf.speeds.ping_pong import ALLREDUCE, MeasuredLink, MeasuredLinks

# A link between hosts that is slower than this, or than a tenth of the fastest link, gets a warning.
_SLOW, _LATE = 60e6, 500e-6  # bytes/s: half a Gigabit Ethernet; seconds
_SAME_HOST_LATE = 200e-6


def check_links(ranks: Ranks, measured: MeasuredLinks) -> Section:
    """Return the findings about measured links; this call is not collective."""
    size = ranks.world.size
    if size == 1:
        return Section("Connections", (note("one rank has no connections"),))
    rows: list[tuple[str, ...]] = [("from", "to", "latency", "bandwidth")]
    for link in measured.links:
        ends = [f"rank {rank} ({ranks.hosts[rank]})" for rank in (link.one, link.other)]
        rows.append((*ends, f"{link.latency * 1e6:.1f} µs", f"{link.bandwidth / 1e6:.0f} MB/s"))
    took = measured.allreduce * ALLREDUCE
    sums = ok(f"an Allreduce (sum) of 4 MB over {size} ranks takes {took * 1e3:.3g} ms")
    return Section("Connections", (sums, *_remarks(ranks, measured.links)), tuple(columns(rows, left=2)))


def _remarks(ranks: Ranks, links: tuple[MeasuredLink, ...]) -> Iterator[Finding]:
    between_hosts = [link for link in links if ranks.hosts[link.one] != ranks.hosts[link.other]]
    fastest = max((link.bandwidth for link in between_hosts), default=0.0)
    for link in links:
        one, other = (f"rank {rank} on host {ranks.hosts[rank]}" for rank in (link.one, link.other))
        if link not in between_hosts:
            if link.latency > _SAME_HOST_LATE:
                yield note(
                    f"{one} and rank {link.other} there: {link.latency * 1e6:.0f} µs a message is slow on one host",
                    "the host is busy: check the cores above, and which other programs run there (top)",
                )
        elif link.bandwidth < max(_SLOW, fastest / 10):
            yield warning(
                f"{one} and {other}: {link.bandwidth / 1e6:.3g} MB/s is slow: the exchange of gradients will take long",
                "name the fastest network that the hosts share: mpirun --mca btl_tcp_if_include eth0 … (ip addr shows "
                "the names), and check its cables and switches",
            )
        elif link.latency > _LATE:
            yield warning(
                f"{one} and {other}: {link.latency * 1e6:.0f} µs a message is slow: small layers will wait for it",
                "use larger batches, which need fewer messages, or hosts that are nearer to each other",
            )
