"""The costs of the layers for CGDP's cost model (section 3.2), made of what a calibration has seen on all ranks.

How what is measured becomes the paper's times. Ranks wait for each other, so of what they do at the same time the
slowest counts; and of several rounds the mean of the faster half, since what others do to the machine only adds to a
time.

- T_BP is backward with the net as one chunk, where no exchange disturbs it. t_bp of a layer is its backward with all
  exchange after backward, less an equal part for each layer of what cutting the net costs; the sum is T_BP.
- D2H copy, accumulation, reduction between hosts and H2D copy (t_bc) are measured with the net as one chunk, and divide
  among the layers as when these are exchanged one by one after backward. Waiting for other ranks is in none of them.
- t_as is by how much T of single layers, and of chunks of about sqrt(l), exceeds Eq. 1 without t_as. It has two parts:
  so much a chunk (``per_chunk``: starting the exchange, cutting the net), and so much of the exchange of all chunks but
  the last (``blocking_share``): what is done by cores that would compute. Both are fitted, by least squares of relative
  errors. In a net of few layers the two look alike. So how long chunks were seen to start, and the net to be longer
  when cut, counts as an observation of ``per_chunk``, too.

``blocking_share`` is about 1 where all cores compute, as with one rank a core on a CPU: what overlaps there is not
hidden. On a GPU it is about 0. In Eq. 1 a chunk's t_as delays its own exchange, too, while here this exchange holds up
what follows. So this part is counted as t_as and taken out of t_aa and t_bc, which gives the T that is meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from bpt.parallel.cgdp.calibration import IterationKind, IterationSample, Layers, middle, one_by_one, whole_net
from bpt.parallel.cgdp.cost_model import ChunkCosts, TrainedLayerCost, backward_time, original_backward_time

BELIEF = 0.5  # what a chunk's own costs count that were seen directly, beside T

Laps = Mapping[IterationKind, Sequence[IterationSample]]


@dataclass(frozen=True)
class ChunkMeasurement:
    """The measured seconds of a kind of iteration: means over the ranks and over the faster half of all rounds.

    Attributes:
        total: T, from the start of backward until all gradients are back.
        waited: the part of it that neither backward nor starting exchanges took.
    """

    total: float
    waited: float


@dataclass(frozen=True)
class CalibrationResult:
    """The costs of a net's layers, and the values of T that the calibration measured.

    Attributes:
        layers: as measured, from the top down: nothing of their exchange is counted as t_as.
        per_chunk: the part of t_as that each chunk has.
        blocking_share: the part of an exchange, 0 to 1, that holds backward up; see the file's docstring.
        seen: kinds of iterations, with their times.
    """

    layers: tuple[TrainedLayerCost, ...]
    per_chunk: float
    blocking_share: float
    seen: Mapping[IterationKind, ChunkMeasurement]

    @property
    def exchange(self) -> float:
        """The seconds of all exchange, the sum of t_aa + t_bc: T'_O of OrigDP."""
        return math.fsum(layer.aa + layer.bc for layer in self.layers)

    @property
    def costs(self) -> ChunkCosts:
        """The costs that predictions of T use."""
        elements = sum(layer.elements for layer in self.layers)
        per_element = self.blocking_share * self.exchange / elements if elements else 0.0
        rest = ChunkCosts(self.layers).scaled(exchange=1 - self.blocking_share)
        return replace(rest, per_chunk=self.per_chunk, per_element=per_element)

    def blocking_seconds(self, lengths: Sequence[int]) -> list[float]:
        """Return t_as of each chunk, by which it delays the chunks below it; the last chunk has none."""
        *others, _ = ChunkCosts(self.layers).chunked(lengths)
        return [self.per_chunk + self.blocking_share * (chunk.aa + chunk.bc) for chunk in others] + [self.per_chunk]

    @property
    def original(self) -> float:
        """T' of OrigDP, predicted as backward followed by all exchange."""
        return original_backward_time(ChunkCosts(self.layers))


def measured(places: Sequence[Layers], ranks: Sequence[Laps], passes: int = 1) -> CalibrationResult:
    """Return the costs of the layers in ``places``, at least one.

    Args:
        places: the layers in each segment of the net, cut into single layers, from the top down; see Place.
        ranks: for each rank what it saw, of the kinds in ``kinds_of`` and maybe others.
        passes: of an iteration (``iter_size``). The exchange overlaps the last one only: costs are those of one pass,
            and T is that of an iteration without the backward of the others.
    """
    count = sum(map(len, places))
    whole, single, unhidden = whole_net(count), one_by_one(count), one_by_one(count, after_backward=True)
    laps = {kind: list(zip(*(of_rank[kind] for of_rank in ranks), strict=True)) for kind in ranks[0]}
    computing, cut = (
        _undisturbed([max(math.fsum(lap.backward) for lap in of_all) for of_all in laps[kind]]) / passes
        for kind in (whole, unhidden)
    )
    layers = _layers(places, [of_rank[unhidden] for of_rank in ranks], computing * passes, laps[whole])
    layers = tuple(replace(layer, bp=layer.bp / passes) for layer in layers)
    seen = {kind: _seen(iterations, passes, computing) for kind, iterations in laps.items()}
    starting = _undisturbed([fmean(lap.started for lap in of_all) for of_all in laps[single]])
    per_chunk, blocking_share = _fit(
        [
            *(_equation(layers, kind, seen[kind].total) for kind in dict.fromkeys((single, middle(count)))),
            _Equation(count, 0.0, max(cut - computing, 0.0) + starting, seen[single].total / BELIEF),
        ]
    )
    return CalibrationResult(layers, per_chunk, blocking_share, seen)


def _seen(iterations: Sequence[Sequence[IterationSample]], passes: int, computing: float) -> ChunkMeasurement:
    """Return the measurements of ``iterations``, without the passes before the last one.

    Those took ``computing`` seconds each when they were undisturbed. The last pass, which alone waits for an exchange,
    takes at least its part of an iteration, however disturbed that was.
    """
    faster = sorted(iterations, key=lambda of_all: math.fsum(lap.total for lap in of_all))[: -(-len(iterations) // 2)]
    laps = [lap for of_all in faster for lap in of_all]
    total = fmean(lap.total for lap in laps)
    last = max(total - (passes - 1) * computing, total / passes)
    return ChunkMeasurement(last, fmean(lap.waited for lap in laps))


def _undisturbed(seconds: Sequence[float]) -> float:
    """Return the mean of the faster half."""
    return fmean(sorted(seconds)[: -(-len(seconds) // 2)])


def _layers(
    places: Sequence[Layers],
    unhidden: Sequence[Sequence[IterationSample]],
    computing: float,
    whole: Sequence[Sequence[IterationSample]],
) -> tuple[TrainedLayerCost, ...]:
    """Return the times of the layers.

    Args:
        unhidden: of each rank, laps with all exchange after backward.
        computing: T_BP of all passes of an iteration.
        whole: laps of the net as one chunk; for each iteration those of all ranks.
    """
    order = range(len(places))
    backward = [max(_undisturbed([lap.backward[place] for lap in laps]) for laps in unhidden) for place in order]
    bp = _lessened(_by_layer(places, backward), computing)
    stages = []
    for stage in range(4):
        total = _undisturbed([max(math.fsum(part[stage] for part in lap.stages) for lap in laps) for laps in whole])
        each = [max(_undisturbed([lap.stages[place][stage] for lap in laps]) for laps in unhidden) for place in order]
        stages.append(_scaled(_by_layer(places, each), total))
    named = [layer for layers in places for layer in layers]
    return tuple(
        TrainedLayerCost(name, elements, bp=t_bp, d2h=d2h, accumulate=accumulate, bc=bc, reduce=reduce)
        for (name, elements), t_bp, d2h, accumulate, reduce, bc in zip(named, bp, *stages, strict=True)
    )


def _by_layer(places: Sequence[Layers], seconds: Sequence[float]) -> list[float]:
    """Return the seconds of each layer; layers of one place divide its time by their elements.

    The time of a place without elements goes to the layer below it, or at the bottom of the net to the last one.
    """
    result: list[float] = []
    waiting = 0.0
    for layers, time in zip(places, seconds, strict=True):
        waiting += time
        if layers:
            elements = sum(own for _, own in layers)
            parts = [own / elements if elements else 1 / len(layers) for _, own in layers]
            result += [waiting * part for part in parts]
            waiting = 0.0
    result[-1] += waiting
    return result


def _lessened(seconds: Sequence[float], total: float) -> list[float]:
    """Return ``seconds`` with the sum ``total``: reduced by equal parts if they are more, else in proportion."""
    more = max(math.fsum(seconds) - total, 0.0) / len(seconds)
    return _scaled([max(each - more, 0.0) for each in seconds], total)


def _scaled(seconds: Sequence[float], total: float) -> list[float]:
    """Return ``seconds`` in proportion, with the sum ``total``."""
    whole = math.fsum(seconds)
    return [total * each / whole if whole else total / len(seconds) for each in seconds]


class _Equation(NamedTuple):
    """The equation ``per_chunk * chunks + blocking_share * hideable = excess``, for T of a kind of iterations.

    Attributes:
        chunks: their number.
        hideable: seconds of exchange of all chunks but the last.
        excess: by how much T exceeds Eq. 1 without t_as.
        total: T.
    """

    chunks: int
    hideable: float
    excess: float
    total: float

    def error(self, per_chunk: float, blocking_share: float) -> float:
        """Return the relative error of T."""
        return (per_chunk * self.chunks + blocking_share * self.hideable - self.excess) / self.total


def _equation(layers: tuple[TrainedLayerCost, ...], kind: IterationKind, total: float) -> _Equation:
    costs = ChunkCosts(layers)
    *hideable, _ = costs.chunked(kind.lengths)
    excess = total - backward_time(costs, kind.lengths)
    return _Equation(len(kind.lengths), math.fsum(chunk.aa + chunk.bc for chunk in hideable), max(excess, 0.0), total)


def _fit(equations: Sequence[_Equation]) -> tuple[float, float]:
    """Return ``per_chunk`` (at least 0) and ``blocking_share`` (0 to 1) with the least sum of squared errors.

    The minimum is where the gradient is 0, if that is allowed, or else on a border.
    """
    rows = [(e.chunks / e.total, e.hideable / e.total, e.excess / e.total) for e in equations]
    aa, ab, bb = (math.fsum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    ac, bc = (math.fsum(row[i] * row[2] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    found = [(max((ac - ab * blocking_share) / aa, 0.0), blocking_share) for blocking_share in (0.0, 1.0)]
    if bb:
        found.append((0.0, min(max(bc / bb, 0.0), 1.0)))
    if determinant > 1e-12 * aa * bb:
        inside = (ac * bb - bc * ab) / determinant, (aa * bc - ab * ac) / determinant
        if inside[0] >= 0 and 0 <= inside[1] <= 1:
            found.append(inside)
    return min(found, key=lambda pair: math.fsum(equation.error(*pair) ** 2 for equation in equations))
