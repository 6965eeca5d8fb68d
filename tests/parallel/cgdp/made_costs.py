"""Made costs: an example worked by hand, and random ones for hypothesis."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from bpt.parallel.cgdp.chunks import chunks
from bpt.parallel.cgdp.cost_model import ChunkCosts, TrainedLayerCost

# From layer 3 down to layer 1. The tests work with these numbers.
THREE = ChunkCosts(
    (
        TrainedLayerCost("c", 4, bp=2.0, d2h=3.0, accumulate=1.0, bc=2.0),
        TrainedLayerCost("b", 2, bp=1.0, d2h=1.0, accumulate=1.0, bc=1.0),
        TrainedLayerCost("a", 1, bp=4.0, d2h=0.5, accumulate=0.25, bc=0.25),
    ),
    per_chunk=0.5,
)

SECONDS = st.floats(0, 10, allow_subnormal=False)
LAYERS = st.builds(
    TrainedLayerCost, st.just("layer"), st.integers(0, 1000), SECONDS, SECONDS, SECONDS, SECONDS, SECONDS
)


@st.composite
def costs(draw: st.DrawFn, most: int = 8) -> ChunkCosts:
    """A net of one layer or more."""
    layers = draw(st.lists(LAYERS, min_size=1, max_size=most))
    return ChunkCosts(tuple(layers), draw(SECONDS), draw(st.floats(0, 0.01, allow_subnormal=False)))


@st.composite
def cuts(draw: st.DrawFn, layers: int) -> tuple[int, ...]:
    """Any cut of so many layers."""
    marks = draw(st.lists(st.booleans(), min_size=layers - 1, max_size=layers - 1))
    starts = [0, *(place for place, mark in enumerate(marks, start=1) if mark), layers]
    return tuple(end - start for start, end in pairwise(starts))


@st.composite
def costs_and_cut(draw: st.DrawFn) -> tuple[ChunkCosts, tuple[int, ...]]:
    made = draw(costs())
    return made, draw(cuts(len(made.layers)))


@st.composite
def hidden(draw: st.DrawFn) -> tuple[ChunkCosts, tuple[int, ...]]:
    """Costs where the exchange of every chunk fits under the backward of the next one, and the chunks."""
    exchanges = draw(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=6))
    size = draw(st.integers(1, len(exchanges) + 1))
    lengths = chunks(len(exchanges), size)
    layers: list[TrainedLayerCost] = []
    before = 0.0  # exchange of the chunk above
    for length in lengths:
        group = exchanges[len(layers) : len(layers) + length]
        for place, (d2h, accumulate, bc, spare) in enumerate(group):
            layers.append(
                TrainedLayerCost(f"{len(layers)}", 1, spare + (before if place == 0 else 0), d2h, accumulate, bc)
            )
        before = sum(d2h + accumulate + bc for d2h, accumulate, bc, _ in group)
    return ChunkCosts(tuple(layers), draw(SECONDS)), lengths
