"""The tables of ``bpt time --roofline``: the roofs, the layers by their time above them, and the whole net."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.base.log import columns
from bpt.perf.timing.layer_times import PassTimes
from bpt.perf.timing.peaks import QUIET, Peaks
from bpt.perf.timing.roofline import Direction, Point

TIMES = ("ms", "at roof ms", "above ms", "of roof")
HEAD = ("layer", "type", "pass", "roof", *TIMES, "of net", "GFLOP/s", "GB/s", "FLOP/byte")
LEFT = 4  # columns of text
NET_HEAD: tuple[str, ...] = ("", *TIMES, "GFLOP/s", "GB/s")


def roofline_lines(
    points: Sequence[Point], peaks: Peaks, passes: PassTimes, precision: str, unit: str, left_out: Sequence[str] = ()
) -> Iterator[str]:
    """Yield all lines.

    Args:
        unit: the name of the GPU, or the number of threads, such as "2 threads".
        left_out: the names of layers without bottoms.
    """
    yield f"Roofline of {precision}, {unit}:"
    yield from roof_lines(peaks)
    yield "Medians; the layer with most time above its roof first:"
    total = sum(point.seconds for point in points)
    yield from columns([HEAD, *(_row(point, total) for point in points)], LEFT)
    yield from columns([NET_HEAD, *_net_rows(points, passes, total)], 1)
    yield "at roof: the least time for a layer's operations and bytes under these roofs. of roof: at roof / measured;"
    yield "more than 100 % means that data were in a cache. of net: above / the time of all layers."
    if left_out:
        yield f"{', '.join(left_out)}: left out, since these roofs do not bound reading and drawing."


def roof_lines(peaks: Peaks) -> Iterator[str]:
    """Yield the two roofs, the intensity where they meet, and a warning if they vary."""
    compute, memory = peaks.compute, peaks.memory
    yield f"Compute roof: {compute.rate / 1e9:.1f} ± {compute.spread / 1e9:.1f} GFLOP/s, {compute.what}."
    yield f"Memory roof: {memory.rate / 1e9:.2f} ± {memory.spread / 1e9:.2f} GB/s, {memory.what}."
    yield f"They meet at {peaks.ridge:.2f} FLOP/byte."
    for name, peak in (("compute", compute), ("memory", memory)):
        spread = peak.spread / peak.rate
        if max(abs(peak.moved), spread) > QUIET:
            yield (
                f"The {name} roof varies (± {spread:.0%}, and {peak.moved:+.0%} from before the layers to after "
                "them): other programs run here, or the clock changes. Repeat the timing on an idle machine."
            )


def _row(point: Point, total: float) -> tuple[str, ...]:
    work, seconds = point.work, point.seconds
    roof = "none" if not work.flops and not work.bytes else "compute" if point.is_compute_bound else "memory"
    return (
        *(point.node.name, point.node.type, point.direction.value, roof),
        *_times(seconds, point.least),
        f"{point.above / total:.1%}" if total else "",
        *(_rate(work.flops, seconds, 1), _rate(work.bytes, seconds, 2)),
        f"{work.intensity:.2f}" if work.bytes else "",
    )


def _net_rows(points: Sequence[Point], passes: PassTimes, total: float) -> Iterator[tuple[str, ...]]:
    """Yield rows for each direction, and for both: the sum of the layers, and the whole net."""
    whole = {Direction.FORWARD: passes.forward.median, Direction.BACKWARD: passes.backward.median}
    worked = [direction for direction in Direction if any(point.direction is direction for point in points)]
    for direction in worked:
        own = [point for point in points if point.direction is direction]
        yield _sums(f"{direction.value}, sum of layers", own, sum(point.seconds for point in own))
        yield _sums(f"{direction.value}, whole net", own, whole[direction])
    if len(worked) > 1:
        yield _sums("both, sum of layers", points, total)
        yield _sums("both, whole net", points, sum(whole.values()))


def _sums(name: str, points: Sequence[Point], seconds: float) -> tuple[str, ...]:
    least = sum(point.least for point in points)
    flops, moved = (sum(getattr(point.work, kind) for point in points) for kind in ("flops", "bytes"))
    return name, *_times(seconds, least), _rate(flops, seconds, 1), _rate(moved, seconds, 2)


def _times(seconds: float, least: float) -> tuple[str, ...]:
    """Return cells with the measured milliseconds, those at the roof and above it, and the ratio roof / measured."""
    milliseconds = (f"{value * 1e3:.3f}" for value in (seconds, least, seconds - least))
    return *milliseconds, f"{least / seconds:.1%}" if seconds else ""


def _rate(amount: int, seconds: float, digits: int) -> str:
    """Return the rate in 10⁹ a second as text, which is empty if there is no work or no measurable time."""
    return f"{amount / seconds / 1e9:.{digits}f}" if amount and seconds else ""
