"""The tables of ``bpt time --solver`` for ``exchange: CGDP``: the paper's cost model, predicted and measured.

The paper compares CGDP with OrigDP, which is ``exchange: TREE``. It is another run of the same net by the same ranks,
and only its times are shown.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from bpt.base.log import columns, log_lines
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.cgdp.calibration import IterationKind
from bpt.parallel.cgdp.chunks import chunks, describe
from bpt.parallel.cgdp.cost_model import backward_time, computing_time, final_overhead, overhead, total_times
from bpt.parallel.cgdp.layer_costs import CalibrationResult
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals, phase_seconds
from bpt.train.outer.node_solvers import SILENT
from bpt.train.rules.violations import violations_in_step
from bpt.train.runtime.binding import bind
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")

SIZES = (1, 2, 5, 10)  # sizes of chunks, besides one chunk of all layers
WARM_UP = 3  # iterations of OrigDP that are not counted
ROUNDS = 5  # largest number of measurements of each size
Lengths = tuple[int, ...]


Phases = Mapping[str, float]  # seconds of an iteration by phase
BACKWARD = ("broadcast", "backward", "pipeline", "exchange")  # the phases of the paper's T and T'
TABLE_2 = {"broadcast": "broadcast", "forward": "forward", "backward": "backward", "exchange": "grad-acc",
           "update": "update-param"}  # fmt: skip


@dataclass(frozen=True)
class CgdpTimes:
    """The measurements of a run with ``exchange: CGDP``.

    Attributes:
        used: lengths of the current chunks, from the top down.
        rows: lengths of the chunks of each measured division, by its name.
        measured: the costs of the layers, and T.
        phases: the seconds of an iteration's phases with the current chunks.
        passes: the passes of an iteration.
        rounds: the number of measurements of each division.
        engine: the memory layout.
    """

    used: Lengths
    rows: Mapping[str, Lengths]
    measured: CalibrationResult
    phases: Phases
    passes: int
    rounds: int
    engine: int


def time_cgdp(runtime: Runtime, iterations: int) -> CgdpTimes | None:
    """Measure the costs of the model, and T for some chunk sizes, while training continues; a collective call.

    Args:
        iterations: the number of iterations that the command times; it limits the time of this measurement.

    Returns:
        ``None`` if there are no chunks; then nothing happens.
    """
    used = runtime.tuner.chunks.lengths
    if not used:
        return None
    rows = cuts(sum(used), used)
    rounds = max(1, min(ROUNDS, iterations // 5))
    runtime.tuner.chunks.calibrate(rounds, [IterationKind(lengths) for lengths in rows.values()])
    runtime.settle()
    measured = runtime.tuner.chunks.measured
    assert measured is not None
    phases, operator = phases_of(runtime, iterations), runtime.nets.train.operator
    return CgdpTimes(used, rows, measured, phases, runtime.plan.optim.iter_size, rounds, operator.engine)


def time_original(
    plan: RunPlan, times: CgdpTimes, device: torch.device, world: Communicator, iterations: int
) -> Phases | None:
    """Return the phases of an iteration with OrigDP, whose sum is T'; a collective call.

    Return ``None`` if the plan does not allow ``exchange: TREE``.
    """
    plan = replace(plan, engine=times.engine).with_parallel(exchange=pb.ParallelParameter.TREE)
    if violations_in_step(plan):
        return None
    with bind(plan, None, world, TrainOptions(device, log=SILENT)) as runtime:
        runtime.settle()
        runtime.run(WARM_UP)
        return phases_of(runtime, iterations)


def phases_of(runtime: Runtime, iterations: int) -> Phases:
    """Train, and return the mean phases of the faster half of the iterations, on the rank that waits least for others.

    So waiting for a slower neighbour does not count as communication.
    """
    events, laps = runtime.parallel.grid.world.events, []
    with events.into(Totals()) as sink:
        for _ in range(iterations):
            runtime.iterate()
            laps.append(phase_seconds(sink.take()))
    ranks: list[list[Phases]] = runtime.parallel.grid.world.allgather(laps)
    least = [min(of_all, key=lambda lap: lap["broadcast"] + lap["exchange"]) for of_all in zip(*ranks, strict=True)]
    faster = sorted(least, key=lambda lap: math.fsum(lap.values()))[: -(-iterations // 2)]
    return {name: fmean(lap[name] for lap in faster) for name in faster[0]}


def log_cgdp_times(times: CgdpTimes, original: Phases | None) -> None:
    """Log the tables.

    Args:
        original: the phases with OrigDP, if it was measured.
    """
    measured, used = times.measured, times.used
    if original is not None:
        LOG.info("CGDP beside OrigDP (exchange: TREE), by phase of an iteration, in ms (Table 2 of the paper):")
        log_lines(LOG, phase_table(times.phases, original))
    LOG.info("CGDP, by layer, in ms (Table 3 of the paper); predicted for chunks %s:", describe(used))
    log_lines(LOG, layer_table(measured, used))
    LOG.info(
        "CGDP, backward until all gradients are back, in ms (section 3.2), mean of the faster half of %d:", times.rounds
    )
    seen = None
    if original is not None:
        others = (times.passes - 1) * computing_time(measured.costs)
        seen = max(math.fsum(original[name] for name in BACKWARD) - others, 0.0)
    log_lines(LOG, total_table(measured, times.rows, seen))
    log_lines(LOG, summary(measured, used))


def phase_table(cgdp: Phases, original: Phases) -> Iterator[str]:
    """Yield a line for OrigDP and one for CGDP, with the paper's columns (Table 2)."""
    rows = [["", *TABLE_2.values(), "total time"]]
    for name, phases in (("OrigDP", original), ("CGDP", cgdp)):
        rows.append([name, *(_ms(phases[phase]) for phase in TABLE_2), _ms(math.fsum(phases.values()))])
    rows[-1][1] = "N/A"
    yield from columns(rows, left=1)
    yield "grad-acc of CGDP: the part that backward does not hide, until all gradients are back from the CPUs."


def cuts(layers: int, used: Lengths) -> dict[str, Lengths]:
    """Return the divisions to measure, as lengths of chunks by name: the current one, and some of equal sizes."""
    sizes = [*(size for size in SIZES if size <= layers), layers + 1]
    named = {"all layers" if size > layers else f"size {size}": chunks(layers, size) for size in sizes}
    return {"in use": used, **named}


def layer_table(measured: CalibrationResult, used: Lengths) -> Iterator[str]:
    """Yield a line a layer, from the top down: parameters and times (Table 3).

    The last layer of each chunk has the chunk's t_as and T_BP^i.
    """
    costs = measured.costs
    reduces = any(layer.reduce for layer in measured.layers)
    stages = ["D2H", "accumulate", *(["between hosts"] if reduces else []), "H2D (t_bc)"]
    rows = [["layer", "parameters", "t_bp", *stages, "t_as", "T_BP^i"]]
    layers = iter(measured.layers)
    for length, t_as, total in zip(used, measured.blocking_seconds(used), total_times(costs, used), strict=True):
        for number in range(length):
            layer = next(layers)
            end = [_ms(t_as), _ms(total)] if number == length - 1 else ["", ""]
            rows.append([layer.name, str(layer.elements), _ms(layer.bp), *_stages(layer.stages, reduces), *end])
    elements = sum(layer.elements for layer in measured.layers)
    sums = [sum(column) for column in zip(*(layer.stages for layer in measured.layers), strict=True)]
    end = [_ms(sum(measured.blocking_seconds(used))), _ms(backward_time(costs, used))]
    rows.append(["sum", str(elements), _ms(sum(layer.bp for layer in measured.layers)), *_stages(sums, reduces), *end])
    yield from columns(rows, left=1)
    yield "t_aa: D2H and accumulate. t_as, predicted: delay of the backward pass of lower layers by a chunk's exchange."
    yield "T_BP^i, predicted: from the start of backward until a chunk's gradients are back (Eq. 1); its maximum is T."


def total_table(
    measured: CalibrationResult, rows: Mapping[str, Lengths], original: float | None = None
) -> Iterator[str]:
    """Yield a line for each division in ``rows`` with T and its overhead T_O, predicted and measured; one for OrigDP.

    Args:
        original: the measured T' in seconds, if it was measured.
    """
    costs = measured.costs
    computing = computing_time(costs)
    lines = [["chunks", "", "T predicted", "T measured", "ratio", "T_O predicted", "Eq. 2", "T_O measured"]]
    for name, lengths in rows.items():
        shown = describe(lengths)
        times = backward_time(costs, lengths), measured.seen[IterationKind(lengths)].total
        shown = shown if len(shown) <= 24 else f"{shown[:23]}…"
        lines.append([name, shown, *_cells(*times, computing, final_overhead(costs, lengths))])
    lines.append(["OrigDP: T', T'_O", "", *_cells(measured.original, original, computing)])
    yield from columns(lines, left=2)
    yield "ratio: predicted / measured. OrigDP: all exchange after backward; predicted from the same times."
    yield "T_O: by Eq. 1, T less backward alone; by Eq. 2, t_as, and the exchange of the last chunk."


def summary(measured: CalibrationResult, used: Lengths) -> Iterator[str]:
    """Yield the part of the exchange that the current chunks hide, and the delay of backward."""
    exchange = measured.exchange
    seen = measured.seen[IterationKind(used)].total - computing_time(measured.costs)
    predicted = overhead(measured.costs, used)
    yield (
        f"All exchange takes {_ms(exchange)} ms (T'_O). Beside backward it adds {_ms(seen)} ms (T_O; predicted "
        f"{_ms(predicted)}), so {_hidden(seen, exchange)} of it is hidden (predicted: {_hidden(predicted, exchange)})."
    )
    yield (
        f"t_as delays backward by {_ms(sum(measured.blocking_seconds(used)))} ms: "
        f"{_ms(measured.per_chunk)} a chunk, and "
        f"{measured.blocking_share:.0%} of the copies and sums, which take the cores that compute."
    )
    total = backward_time(measured.costs, used)
    if measured.original < total:
        yield (
            f"One exchange after backward is predicted to be faster here: T' = {_ms(measured.original)} against T = "
            f"{_ms(total)} ms. CGDP needs cores that are otherwise idle; try exchange: ALLREDUCE or TREE."
        )


def _hidden(added: float, exchange: float) -> str:
    """Return the hidden part of an exchange of ``exchange`` seconds that ``added`` these seconds to backward.

    Measured iterations vary, so ``added`` may be negative: then all of the exchange is hidden.
    """
    if exchange <= 0 or added <= 0:
        return "all"
    return f"{1 - added / exchange:.1%}" if added < exchange else "nothing"


def _stages(seconds: Sequence[float], reduces: bool) -> list[str]:
    d2h, accumulate, reduce, bc = map(_ms, seconds)
    return [d2h, accumulate, *([reduce] if reduces else []), bc]


def _cells(predicted: float, seen: float | None, computing: float, final: float | None = None) -> Sequence[str]:
    """Return the cells of a line in ``total_table``; ``None`` gives an empty cell."""
    ratio = f"{predicted / seen:.3f}" if seen else ""
    end = ["" if final is None else _ms(final), "" if seen is None else _ms(seen - computing)]
    return [_ms(predicted), "" if seen is None else _ms(seen), ratio, _ms(predicted - computing), *end]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"
