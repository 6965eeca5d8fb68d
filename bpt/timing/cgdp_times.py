"""What ``bpt time --solver`` shows of ``exchange: CGDP``: the paper's cost model, predicted and measured."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from bpt.report.log import columns
from bpt.runtime.chunks.calibration import Kind
from bpt.runtime.chunks.layer_costs import Measured
from bpt.runtime.runtime import Runtime
from bpt.schedule.chunks import chunks, describe
from bpt.schedule.cost_model import (
    backward_time,
    computing_time,
    overhead,
    total_times,
)

LOG = logging.getLogger("bpt")

SIZES = (1, 2, 5, 10)  # of chunks; and one chunk of all layers
ROUNDS = 5  # in which each of them is measured, if so many iterations are to be timed
Lengths = tuple[int, ...]


def log_cgdp_times(runtime: Runtime, iterations: int) -> None:
    """Measure what the cost model needs, and T for some chunk sizes, while training goes on; log the tables.

    A collective call; nothing happens without chunks.

    Args:
        iterations: for how many the rest of the command times, as a hint how long this may take.
    """
    used = runtime.chunks.lengths
    if not used:
        return
    rows = cuts(sum(used), used)
    rounds = max(1, min(ROUNDS, iterations // 5))
    runtime.chunks.calibrate(rounds, [Kind(lengths) for lengths in rows.values()])
    runtime.settle()
    measured = runtime.chunks.measured
    assert measured is not None
    LOG.info("CGDP, by layer, in ms (Table 3 of the paper); predicted for chunks %s:", describe(used))
    for line in layer_table(measured, used):
        LOG.info("%s", line)
    LOG.info("CGDP, backward until all gradients are back, in ms (section 3.2), mean of the faster half of %d:", rounds)
    for line in total_table(measured, rows):
        LOG.info("%s", line)
    for line in summary(measured, used):
        LOG.info("%s", line)


def cuts(layers: int, used: Lengths) -> dict[str, Lengths]:
    """The chunks that are looked at, each with its name: those in use, and those of some sizes."""
    sizes = [*(size for size in SIZES if size <= layers), layers + 1]
    named = {"all layers" if size > layers else f"size {size}": chunks(layers, size) for size in sizes}
    return {"in use": used, **named}


def layer_table(measured: Measured, used: Lengths) -> Iterator[str]:
    """A line a layer, from the top down: parameters and times (Table 3).

    The last layer of each chunk has the chunk's t_as and T_BP^i.
    """
    costs = measured.costs
    reduces = any(layer.reduce for layer in measured.layers)
    stages = ["D2H", "accumulate", *(["between hosts"] if reduces else []), "H2D (t_bc)"]
    rows = [["layer", "parameters", "t_bp", *stages, "t_as", "T_BP^i"]]
    layers = iter(measured.layers)
    for length, t_as, total in zip(used, measured.held_up(used), total_times(costs, used), strict=True):
        for number in range(length):
            layer = next(layers)
            end = [_ms(t_as), _ms(total)] if number == length - 1 else ["", ""]
            rows.append([layer.name, str(layer.elements), _ms(layer.bp), *_stages(layer.stages, reduces), *end])
    elements = sum(layer.elements for layer in measured.layers)
    sums = [sum(column) for column in zip(*(layer.stages for layer in measured.layers), strict=True)]
    end = [_ms(sum(measured.held_up(used))), _ms(backward_time(costs, used))]
    rows.append(["sum", str(elements), _ms(sum(layer.bp for layer in measured.layers)), *_stages(sums, reduces), *end])
    yield from columns(rows, left=1)
    yield "t_aa: D2H and accumulate. t_as, predicted: how long a chunk's exchange holds up backward of what is below."
    yield "T_BP^i, predicted: from the start of backward until a chunk's gradients are back (Eq. 1); its maximum is T."


def total_table(measured: Measured, rows: Mapping[str, Lengths]) -> Iterator[str]:
    """A line for each of the chunks in ``rows``: T and its overhead T_O, predicted and measured; one for OrigDP."""
    costs = measured.costs
    computing = computing_time(costs)
    lines = [["chunks", "", "T predicted", "T measured", "ratio", "T_O predicted", "T_O measured"]]
    for name, lengths in rows.items():
        shown = describe(lengths)
        times = backward_time(costs, lengths), measured.seen[Kind(lengths)].total
        lines.append([name, shown if len(shown) <= 24 else f"{shown[:23]}…", *_pair(*times, computing)])
    lines.append(["OrigDP: T', T'_O", "", _ms(measured.original), "", "", _ms(measured.exchange), ""])
    yield from columns(lines, left=2)
    yield "ratio: predicted / measured. OrigDP: all exchange after backward, predicted from the same times."


def summary(measured: Measured, used: Lengths) -> Iterator[str]:
    """What of the exchange is hidden with the chunks in use, and what holds backward up."""
    exchange = measured.exchange
    seen = measured.seen[Kind(used)].total - computing_time(measured.costs)
    predicted = overhead(measured.costs, used)
    yield (
        f"All exchange takes {_ms(exchange)} ms (T'_O). Beside backward it adds {_ms(seen)} ms (T_O; predicted "
        f"{_ms(predicted)}), so {_hidden(seen, exchange)} of it is hidden (predicted: {_hidden(predicted, exchange)})."
    )
    yield (
        f"t_as holds backward up for {_ms(sum(measured.held_up(used)))} ms: {_ms(measured.per_chunk)} a chunk, and "
        f"{measured.held:.0%} of the copies and sums, which take the cores that compute."
    )
    total = backward_time(measured.costs, used)
    if measured.original < total:
        yield (
            f"One exchange after backward is predicted to be faster here: T' = {_ms(measured.original)} against T = "
            f"{_ms(total)} ms. CGDP wants cores that have nothing else to do; try exchange: ALLREDUCE or TREE."
        )


def _hidden(added: float, exchange: float) -> str:
    """The share of ``exchange`` seconds that backward and exchange together do not take longer."""
    share = 1 - added / exchange if exchange else 1.0
    return f"{share:.1%}" if share > 0 else "nothing"


def _stages(seconds: Sequence[float], reduces: bool) -> list[str]:
    d2h, accumulate, reduce, bc = map(_ms, seconds)
    return [d2h, accumulate, *([reduce] if reduces else []), bc]


def _pair(predicted: float, seen: float, computing: float) -> Sequence[str]:
    ratio = f"{predicted / seen:.3f}" if seen else ""
    return [_ms(predicted), _ms(seen), ratio, _ms(predicted - computing), _ms(seen - computing)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
