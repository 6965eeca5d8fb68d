"""What the time of a training iteration is made of: the roof, the layers' time above it, the update and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from bpt.base.log import columns
from bpt.config.proto.sources import SolverSource
from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import Family
from bpt.perf.timing.benchmark import itemsizes_of
from bpt.perf.timing.layer_times import time_layers, time_passes
from bpt.perf.timing.peaks import PeakMeter, Peaks
from bpt.perf.timing.roofline import Point, points
from bpt.system.device import CPU
from bpt.train.solver.solver import Solver
from scripts.benches.harness.sides import fed

SETTLE = 24  # iterations in which a solver has chosen its layout
NAMED = (Family.CONVOLUTION, Family.CONNECTED, Family.POOLING, Family.ACTIVATION, Family.NORM)
OTHER = "other layers"
HEAD = ("net", "iteration ms", "of roof", "at roof", *(each.value for each in NAMED), OTHER, "fusion", "update", "rest")


@dataclass(frozen=True)
class IterationParts:
    """The parts of an iteration, in seconds.

    Attributes:
        at_roof: the least time of all layers, forward and backward, by the roofline model.
        above: what layers take above their roofs, run one by one, by kind.
        passes: the forward and the backward pass of the whole net, in which layers run fused.
        update: the update of the parameters.
    """

    at_roof: float
    passes: float
    update: float
    above: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, layers: Sequence[Point], passes: float, update: float) -> IterationParts:
        """Sum up layers of ``roofline.points``."""
        above = dict.fromkeys((*(each.value for each in NAMED), OTHER), 0.0)
        for point in layers:
            family = LAYERS[point.node.type].family
            above[family.value if family in NAMED else OTHER] += point.above
        return cls(sum(point.least for point in layers), passes, update, above)

    def facts(self) -> dict[str, Any]:
        """Return the parts in a form that JSON has, from which ``IterationParts(**facts)`` makes them again."""
        return asdict(self)

    def cells(self, net: str, iteration: float) -> tuple[str, ...]:
        """Return a row of the table.

        Args:
            net: its name.
            iteration: seconds of an iteration of the training loop.
        """
        apart = self.at_roof + sum(self.above.values())
        parts = (*self.above.values(), self.passes - apart, self.update, iteration - self.passes - self.update)
        times = (f"{seconds * 1e3:.2f}" for seconds in (self.at_roof, *parts))
        return net, f"{iteration * 1e3:.2f}", f"{self.at_roof / iteration:.0%}", *times


def measure(source: SolverSource, data: Tensor, label: Tensor, iterations: int) -> tuple[IterationParts, Peaks]:
    """Time the layers, the passes and the update of a solver's net, in the layout that training has chosen."""
    solver = Solver(source)
    net, train = solver.net, solver.runtime.nets.train.operator
    batch = fed(net.graph, data, label)
    train.feed(batch)
    solver.step(SETTLE)
    whole, by_layer = Operator(net, device=CPU), Operator(net, per_layer(net.graph), CPU)
    for operator in (whole, by_layer):
        operator.engine = train.engine
        operator.feed(batch)
    meter = PeakMeter(CPU, net.precision.multiply_type)
    meter.measure()
    rule = solver.runtime.updater.rule
    passes = time_passes(whole, iterations, lambda: rule.update(0.0, 0))
    layers = time_layers(by_layer, iterations)
    meter.measure()
    assert passes.update is not None
    found = points(net.graph, layers, itemsizes_of(net), meter.peaks())
    both = passes.forward.median + passes.backward.median
    return IterationParts.of(found, both, passes.update.median), meter.peaks()


def part_lines(rows: Sequence[tuple[str, float, IterationParts]]) -> Iterator[str]:
    """Yield the table of several nets, each with the seconds of its iteration, and what the columns mean."""
    yield from columns([HEAD, *(parts.cells(net, seconds) for net, seconds, parts in rows)], 1)
    yield "Milliseconds. at roof: the least time of all layers under this machine's roofs (docs/timing.md). Kinds of"
    yield "layers: what they take above their roofs, run one by one. fusion: the passes of the whole net less those"
    yield "layers; negative where layers that run as one save time. rest: all else of an iteration of the loop."
