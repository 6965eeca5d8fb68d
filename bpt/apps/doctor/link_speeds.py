"""What doctor says of how fast messages travel between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from bpt.apps.doctor.findings import Finding, Ranks, Section, note, ok, warning
from bpt.base.log import columns
from bpt.perf.speeds.ping_pong import ALLREDUCE, MeasuredLink, MeasuredLinks

# A warning is due between hosts that are further apart than this, or a tenth of the fastest link.
_SLOW, _LATE = 60e6, 500e-6  # bytes/s: half a Gigabit Ethernet; seconds
_SAME_HOST_LATE = 200e-6


def check_links(ranks: Ranks, measured: MeasuredLinks) -> Section:
    """Return what the measurement says. Not collective."""
    size = ranks.world.size
    if size == 1:
        return Section("Connections", (note("one rank has nobody to talk to"),))
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
                    f"{one} and rank {link.other} there: {link.latency * 1e6:.0f} µs a message are many on one host",
                    "its cores have more to do than these ranks: see the cores above, and what else runs there (top)",
                )
        elif link.bandwidth < max(_SLOW, fastest / 10):
            yield warning(
                f"{one} and {other}: {link.bandwidth / 1e6:.3g} MB/s are few: the exchange of gradients will take long",
                "name the fastest network that the hosts share: mpirun --mca btl_tcp_if_include eth0 … (ip addr shows "
                "the names), and see its cables and switches",
            )
        elif link.latency > _LATE:
            yield warning(
                f"{one} and {other}: {link.latency * 1e6:.0f} µs a message are many: small layers will wait for it",
                "larger batches make fewer messages; hosts nearer to each other shorter ones",
            )
