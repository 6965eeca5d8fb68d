"""The costs of layers from made-up iterations: a machine whose times are known, and what the model makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from bpt.parallel.cgdp.calibration import IterationKind, IterationSample, kinds_of
from bpt.parallel.cgdp.cost_model import TrainedLayerCost, backward_time
from bpt.parallel.cgdp.layer_costs import BELIEF, CalibrationResult, ChunkMeasurement, measured
from tests.support.near import near

# From the top down. In sum: 13 s of backward, 10 s of exchange for 100 elements.
LAYERS = (
    TrainedLayerCost("d", 30, bp=2.0, d2h=1.0, accumulate=0.5, bc=1.25, reduce=0.25),
    TrainedLayerCost("c", 40, bp=1.0, d2h=2.0, accumulate=0.75, bc=1.0, reduce=0.25),
    TrainedLayerCost("b", 20, bp=4.0, d2h=0.75, accumulate=0.5, bc=0.5, reduce=0.25),
    TrainedLayerCost("a", 10, bp=6.0, d2h=0.25, accumulate=0.25, bc=0.25, reduce=0.25),
)
PLACES = [((layer.name, layer.elements),) for layer in LAYERS]
KINDS = kinds_of(4)  # chunks of 2 are the middle: 2, 1, 1


@dataclass(frozen=True)
class Machine:
    """Ranks that do as the model says.

    Attributes:
        cut: what a segment takes beside the first one.
        started: what the start of an exchange takes.
        blocking_share: the part of an exchange that takes the time of what runs backward meanwhile.
    """

    cut: float = 0.125
    started: float = 0.25
    blocking_share: float = 0.5
    passes: int = 1

    def lap(self, kind: IterationKind) -> IterationSample:
        stages = tuple(layer.stages for layer in LAYERS)
        groups = []
        layers = iter(LAYERS)
        for length in kind.lengths:
            groups.append([next(layers) for _ in range(length)])
        exchange = [math.fsum(layer.aa + layer.bc for layer in group) for group in groups]
        backward = [sum(layer.bp for layer in group) * self.passes for group in groups]
        if len(groups) > 1:
            backward = [seconds + len(groups) * self.cut * self.passes / len(groups) for seconds in backward]
        if kind.after_backward:
            # Three threads share a core, so that each stage looks three times as long as it is.
            return IterationSample(
                tuple(backward), self.started, 99.0, tuple((3 * a, 3 * b, 3 * c, 3 * d) for a, b, c, d in stages)
            )
        backward[-1] += self.blocking_share * sum(exchange[:-1])
        whole = tuple(math.fsum(column) for column in zip(*stages, strict=True))
        started = self.started * len(groups) if len(groups) > 1 else 0.0
        return IterationSample(tuple(backward), started, exchange[-1], (whole,))  # type: ignore[arg-type]

    def laps(
        self, rounds: int = 1, kinds: Sequence[IterationKind] = KINDS
    ) -> dict[IterationKind, list[IterationSample]]:
        return {kind: [self.lap(kind)] * rounds for kind in kinds}


def assert_layers(found: CalibrationResult, factor: float = 1.0) -> None:
    for ours, theirs in zip(found.layers, LAYERS, strict=True):
        assert (ours.name, ours.elements) == (theirs.name, theirs.elements)
        assert ours.bp == pytest.approx(theirs.bp * factor)
        assert ours.stages == pytest.approx([seconds * factor for seconds in theirs.stages])


def test_a_machine_is_recognised() -> None:
    """Each chunk costs 0.125 s for the cut and 0.25 s for its start, and half of each exchange but the last is seen."""
    found = measured(PLACES, [Machine().laps(3)] * 2)
    assert_layers(found)
    assert found.per_chunk == pytest.approx(0.375)
    assert found.blocking_share == pytest.approx(0.5)
    assert found.exchange == pytest.approx(10.0)
    assert found.original == pytest.approx(23.0)  # T' = 13 + 10
    # T by hand: 13 s, 0.375 a chunk, half of the exchange of all chunks but the last, and all of that (a: 1 s).
    expected = {(1, 1, 1, 1): 13 + 1.5 + 4.5 + 1, (2, 1, 1): 13 + 1.125 + 4.5 + 1, (4,): 13 + 0.375 + 10}
    for lengths, seconds in expected.items():
        assert backward_time(found.costs, lengths) == pytest.approx(seconds)
    assert found.blocking_seconds((2, 1, 1)) == pytest.approx([0.375 + 3.5, 0.375 + 1.0, 0.375])
    assert found.blocking_seconds((4,)) == pytest.approx([0.375])
    assert found.seen[IterationKind((1, 1, 1, 1))].total == pytest.approx(20.0)
    assert found.seen[IterationKind((2, 1, 1))].waited == pytest.approx(1.0)
    assert found.seen[IterationKind((4,))].total == pytest.approx(23.0)


@pytest.mark.parametrize(("blocking_share", "seconds"), [(0.0, 7 + 0.375 + 9), (1.0, 13 + 2 * 0.375 + 9 + 1)])
def test_backward_is_blocked_by_all_or_nothing_of_the_exchange(blocking_share: float, seconds: float) -> None:
    """Chunks that were in no calibration: the upper three layers, whose exchange ends last if nothing is held up, and
    the lowest."""
    found = measured(PLACES, [Machine(blocking_share=blocking_share).laps()])
    assert found.blocking_share == pytest.approx(blocking_share)
    assert backward_time(found.costs, (3, 1)) == pytest.approx(seconds)


def test_what_is_hidden_costs_nothing() -> None:
    found = measured(PLACES, [Machine(cut=0.0, started=0.0, blocking_share=0.0).laps()])
    assert (found.per_chunk, found.blocking_share) == (0.0, 0.0)


def test_several_passes_an_iteration() -> None:
    """The costs are those of one; what cutting costs in the others is a chunk's, too: 3 · 0.125 + 0.25."""
    found = measured(PLACES, [Machine(passes=3).laps()], passes=3)
    assert_layers(found)
    assert found.seen[IterationKind((4,))].total == pytest.approx(23.0)
    assert found.seen[IterationKind((1, 1, 1, 1))].total == pytest.approx(13 + 4 * 0.625 + 4.5 + 1)


def test_passes_of_a_busy_machine_leave_the_last_one_its_part() -> None:
    """The net as one chunk ran 4 times slower than cut: two passes of it take longer than a whole iteration did."""
    laps = Machine(passes=3).laps()
    laps[IterationKind((4,))] = [times(lap, 4.0) for lap in laps[IterationKind((4,))]]
    (cut,) = laps[IterationKind((1, 1, 1, 1))]
    found = measured(PLACES, [laps], passes=3)
    assert cut.total < 2 * 4 * 13
    assert found.seen[IterationKind((1, 1, 1, 1))].total == pytest.approx(cut.total / 3)
    assert all(math.isfinite(cost) and cost >= 0 for cost in (found.per_chunk, found.blocking_share))


def test_the_slowest_rank_counts_and_the_faster_half_of_all_rounds() -> None:
    """Rank 1 takes twice as long; in one of three rounds, another for each kind, something else ran on both."""

    def of_rank(pace: float) -> dict[IterationKind, list[IterationSample]]:
        laps = {kind: [times(lap, pace * 0.75), times(lap, pace * 1.25)] for kind, (lap,) in Machine().laps().items()}
        for number, of_kind in enumerate(laps.values()):
            of_kind.insert(number % 3, times(of_kind[0], 10.0))
        return laps

    found = measured(PLACES, [of_rank(1.0), of_rank(2.0)])
    assert_layers(found, 2.0)
    assert found.seen[IterationKind((4,))] == ChunkMeasurement(near(1.5 * 23), near(1.5 * 10))  # the mean of the ranks


def times(lap: IterationSample, factor: float) -> IterationSample:
    return IterationSample(
        tuple(seconds * factor for seconds in lap.backward),
        lap.started * factor,
        lap.waited * factor,
        tuple((a * factor, b * factor, c * factor, d * factor) for a, b, c, d in lap.stages),
    )


def test_places_with_no_or_several_layers() -> None:
    """What runs above a layer is that layer's, and below the last one the last one's; two in a place share its time by
    their elements, or equally if these are 0."""

    def laps(backward: tuple[float, ...], stages: tuple[float, ...]) -> dict[IterationKind, list[IterationSample]]:
        apart = IterationSample(backward, 0.0, 0.0, tuple((s, 0.0, 0.0, 0.0) for s in stages))
        other = IterationSample((sum(backward),), 0.0, 0.0, ((sum(stages), 0.0, 0.0, 0.0),))
        return {kind: [apart if kind.after_backward else other] for kind in kinds_of(3)}

    seconds = laps((1.0, 8.0, 2.0, 4.0, 0.5), (0.0, 4.0, 0.0, 1.0, 0.0))
    (c, b, a) = measured([(), (("c", 30), ("b", 10)), (), (("a", 5),), ()], [seconds]).layers
    assert [(layer.bp, layer.d2h) for layer in (c, b, a)] == [(6.75, 3.0), (2.25, 1.0), (6.5, 1.0)]
    (c, b, a) = measured([(), (("c", 0), ("b", 0)), (), (("a", 0),), ()], [seconds]).layers
    assert [(layer.bp, layer.d2h) for layer in (c, b, a)] == [(4.5, 2.0), (4.5, 2.0), (6.5, 1.0)]


def test_a_net_of_one_layer() -> None:
    laps = {kind: [IterationSample((4.0,), 0.5, 2.0, ((1.0, 0.5, 0.0, 0.5),))] for kind in kinds_of(1)}
    found = measured([(("a", 3),)], [laps])
    assert found.layers == (TrainedLayerCost("a", 3, bp=4.0, d2h=1.0, accumulate=0.5, bc=0.5),)
    assert backward_time(found.costs, (1,)) == pytest.approx(6.5)


def objective(laps: Mapping[IterationKind, Sequence[IterationSample]]) -> Callable[[float, float], float]:
    """The sum of squared errors that ``per_chunk`` and ``blocking_share`` are to make small, written down anew."""
    single, middle = (laps[IterationKind(lengths)][0] for lengths in ((1, 1, 1, 1), (2, 1, 1)))
    seen = math.fsum(laps[IterationKind((1,) * 4, after_backward=True)][0].backward) - 13 + single.started

    def errors(per_chunk: float, blocking_share: float) -> float:
        # Eq. 1 without t_as: 13 s of backward, and the exchange of the last chunk.
        return sum(
            (
                ((14 + 4 * per_chunk + blocking_share * 9 - single.total) / single.total) ** 2,
                ((14 + 3 * per_chunk + blocking_share * 9 - middle.total) / middle.total) ** 2,
                (BELIEF * (4 * per_chunk - seen) / single.total) ** 2,
            )
        )

    return errors


@pytest.mark.parametrize("more", [(2.0, 3.0), (1.0, 9.0), (9.0, 1.0), (0.0, 0.25), (20.0, 22.0), (0.5, 0.0)])
def test_the_fit_is_the_best(more: tuple[float, float]) -> None:
    """Where T is not as the model says (single layers and the middle take longer), no pair of a grid is better."""
    laps = Machine(cut=0.0, started=0.0, blocking_share=0.0).laps()
    for kind, seconds in zip(KINDS[2:], more, strict=True):
        laps[kind] = [replace_waited(laps[kind][0], seconds)]
    found = measured(PLACES, [laps])
    errors = objective(laps)
    assert found.per_chunk >= 0
    assert 0 <= found.blocking_share <= 1
    least = errors(found.per_chunk, found.blocking_share)
    grid = itertools.product((number / 100 for number in range(600)), (number / 50 for number in range(51)))
    assert all(errors(*pair) > least - 1e-12 for pair in grid)


def replace_waited(lap: IterationSample, more: float) -> IterationSample:
    return lap._replace(waited=lap.waited + more)


def test_a_machine_of_another_pace_has_the_same_parts() -> None:
    machine = Machine(blocking_share=0.25)
    slow = {kind: [times(lap, 1000.0) for lap in laps] for kind, laps in machine.laps().items()}
    found, other = measured(PLACES, [machine.laps()]), measured(PLACES, [slow])
    assert other.blocking_share == pytest.approx(found.blocking_share) == pytest.approx(0.25)
    assert replace(other, layers=()).per_chunk == pytest.approx(1000 * found.per_chunk)
