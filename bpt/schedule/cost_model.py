"""What backward and exchange take together (CGDP, section 3.2): predicted from the measured times of the layers.

All ranks are taken to be alike, as in the paper, so that one stands for all. Only the backward phase counts: forward
and update do not change. Times are seconds.

The paper's names: t_bp is a layer's backward, t_as the synchronisation of the default stream with the D2H stream,
t_aa the copy to the host and the accumulation there, t_bc the way back. T is the time of the backward phase until all
gradients are back, T_BP that of the computing alone, and T_O = T - T_BP; T' and T'_O are those of OrigDP, which
exchanges after backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LayerCost:
    """What a layer with trained parameters takes, or a chunk of such layers.

    Attributes:
        name: of the layer; of a chunk, those of its first and last layer.
        elements: of its trained parameters.
        bp: t_bp, the backward of the layer and of the layers without trained parameters above it.
        d2h: copy of its gradients to the host.
        accumulate: sum of all ranks' gradients on the host.
        bc: t_bc, copy of the global gradients from the host.
        reduce: beyond the paper, sum over hosts; 0 on one host.
    """

    name: str
    elements: int
    bp: float
    d2h: float
    accumulate: float
    bc: float
    reduce: float = 0.0

    def __post_init__(self) -> None:
        assert self.elements >= 0 and all(0 <= time < math.inf for time in (self.bp, *self.stages)), self

    @property
    def stages(self) -> tuple[float, float, float, float]:
        """The times of the exchange in their order: D2H copy, accumulation, reduction between hosts, H2D copy."""
        return self.d2h, self.accumulate, self.reduce, self.bc

    @property
    def aa(self) -> float:
        """t_aa: from the start of the copy to the host until all gradients are accumulated."""
        return self.d2h + self.accumulate + self.reduce


@dataclass(frozen=True)
class Costs:
    """What the layers of a net take, and what a chunk takes besides.

    The paper gives every layer a t_as of its own (section 3.2), and every chunk (4.1). Here it is
    ``per_chunk + per_element * elements``: where the copies are made by the cores that compute (on a CPU), they hold up
    the default stream for as long as they last.

    Attributes:
        layers: those with trained parameters, from the top one (layer l) down to layer 1.
        per_chunk: the part of t_as that does not depend on the chunk.
        per_element: the part of t_as for each element of its parameters.
    """

    layers: tuple[LayerCost, ...]
    per_chunk: float = 0.0
    per_element: float = 0.0

    def __post_init__(self) -> None:
        assert self.per_chunk >= 0 and self.per_element >= 0, self

    def as_(self, elements: int) -> float:
        """t_as of a chunk with so many elements."""
        return self.per_chunk + self.per_element * elements

    def chunked(self, lengths: Sequence[int]) -> Iterator[LayerCost]:
        """The chunks of a cut, from the top down: times and elements of a chunk are the sums of its layers' (4.1)."""
        assert sum(lengths) == len(self.layers) and all(length >= 1 for length in lengths), lengths
        start = 0
        for length in lengths:
            group = self.layers[start : start + length]
            start += length
            yield group[0] if length == 1 else _together(group)

    def scaled(self, backward: float = 1.0, synchronisation: float = 1.0, exchange: float = 1.0) -> Costs:
        """The same net where computing, t_as, or the exchange take this many times as long."""
        layers = (
            replace(
                layer,
                bp=layer.bp * backward,
                d2h=layer.d2h * exchange,
                accumulate=layer.accumulate * exchange,
                bc=layer.bc * exchange,
                reduce=layer.reduce * exchange,
            )
            for layer in self.layers
        )
        return Costs(tuple(layers), self.per_chunk * synchronisation, self.per_element * synchronisation)


def _together(layers: Sequence[LayerCost]) -> LayerCost:
    """The layers as one."""
    return LayerCost(
        name=f"{layers[0].name}..{layers[-1].name}",
        elements=sum([layer.elements for layer in layers]),
        bp=math.fsum([layer.bp for layer in layers]),
        d2h=math.fsum([layer.d2h for layer in layers]),
        accumulate=math.fsum([layer.accumulate for layer in layers]),
        bc=math.fsum([layer.bc for layer in layers]),
        reduce=math.fsum([layer.reduce for layer in layers]),
    )


def total_times(costs: Costs, lengths: Sequence[int]) -> list[float]:
    """Eq. 1: T_BP^i of each chunk, from the start of backward until its global gradients are back on the device.

    Transfers and accumulations of different chunks do not hinder each other here.
    """
    times = []
    computed = 0.0
    for chunk in costs.chunked(lengths):
        computed += chunk.bp + costs.as_(chunk.elements)
        times.append(computed + chunk.aa + chunk.bc)
    return times


def backward_time(costs: Costs, lengths: Sequence[int]) -> float:
    """Eq. 1: T, the largest T_BP^i."""
    return max(total_times(costs, lengths), default=0.0)


def serial_backward_time(costs: Costs, lengths: Sequence[int]) -> float:
    """T if the chunks queue up: one copy a direction, one accumulation and one reduction at a time, first come first
    served. Never less than Eq. 1, and what ``simulate`` gives.

    Eq. 1 lets all copies run at once, though "only one transfer in one direction is allowed at a time" (section 3.1).
    """
    computed = 0.0
    free = [0.0, 0.0, 0.0, 0.0]  # when each stage has done the chunks so far
    for chunk in costs.chunked(lengths):
        computed += chunk.bp + costs.as_(chunk.elements)
        ready = computed
        for stage, seconds in enumerate(chunk.stages):
            ready = free[stage] = max(ready, free[stage]) + seconds
    return free[-1]


def computing_time(costs: Costs) -> float:
    """T_BP = sum of t_bp: backward alone."""
    return math.fsum(layer.bp for layer in costs.layers)


def synchronisation_time(costs: Costs, lengths: Sequence[int]) -> float:
    """Sum of t_as over the chunks (section 4.1)."""
    return math.fsum(costs.as_(chunk.elements) for chunk in costs.chunked(lengths))


def original_overhead(costs: Costs) -> float:
    """T'_O, the overhead of OrigDP: the sum of t_aa + t_bc over all layers (section 3.2)."""
    return math.fsum(layer.aa + layer.bc for layer in costs.layers)


def original_backward_time(costs: Costs) -> float:
    """T' of OrigDP: all exchange after backward, on one stream and so without synchronisation (section 3.2)."""
    return computing_time(costs) + original_overhead(costs)


Predict = Callable[[Costs, Sequence[int]], float]


def overhead(costs: Costs, lengths: Sequence[int], predict: Predict = backward_time) -> float:
    """T_O = T - T_BP, with T of Eq. 1 or of another prediction (section 3.2)."""
    return predict(costs, lengths) - computing_time(costs)


def simplified_overhead(costs: Costs, lengths: Sequence[int]) -> float:
    """Eq. 2: T_O if all exchange but that of the last chunk is hidden: the sum of t_as, and the last t_aa + t_bc."""
    last = list(costs.chunked(lengths))[-1:]
    return synchronisation_time(costs, lengths) + sum(chunk.aa + chunk.bc for chunk in last)


def hidden_share(costs: Costs, lengths: Sequence[int], predict: Predict = backward_time) -> float:
    """The share of all exchange time, the sum of t_aa + t_bc, that backward hides: 0 to 1; 1 if there is none.

    What is left is exposed: T without computing and synchronisation. Synchronisation is never hidden, and is no
    exchange.
    """
    exchange = original_overhead(costs)
    exposed = overhead(costs, lengths, predict) - synchronisation_time(costs, lengths)
    return min(max(1 - exposed / exchange, 0.0), 1.0) if exchange else 1.0
