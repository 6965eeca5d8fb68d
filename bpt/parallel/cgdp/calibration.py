"""Calibration: iterations of training in which the times are taken that CGDP's cost model needs.

Every iteration is one of training like any other, with chunks of a certain kind; nothing is computed twice. Four kinds
tell apart what the model keeps apart (see ``layer_costs``):

- the net as one chunk: backward runs alone (T_BP), and the exchange after it, stage by stage;
- chunks of one layer, but all exchange after backward: what each layer takes (t_bp, t_aa, t_bc) while nothing else
  runs. In this way OrigDP works (T');
- chunks of one layer, and chunks of about sqrt(l) layers: how much the exchange holds backward up (t_as).

Kinds take turns, so that a machine that is slower for a while is so for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionStep
from bpt.nn.net import Net
from bpt.parallel.cgdp.chunks import chunks
from bpt.parallel.cgdp.cut_net import CutNet
from bpt.system.events.totals import Key, Traffic

WARM_UP = 1  # iterations with new chunks that do not count: memory is made ready

Layers = tuple[tuple[str, int], ...]  # names, and elements of their trained parameters that are exchanged
Stages = tuple[float, float, float, float]  # seconds: D2H copy, accumulation, reduction between hosts, H2D copy
METHODS = ("D2H", "accumulate", "Allreduce", "H2D")  # what the stages are called in events


class IterationKind(NamedTuple):
    """The way in which an iteration trains.

    Attributes:
        lengths: chunks, from the top down.
        after_backward: all exchange begins when backward has ended, layer by layer.
    """

    lengths: tuple[int, ...]
    after_backward: bool = False


class ChunkSegment(NamedTuple):
    """A segment of the net that is cut into single layers, with the layers that have trained parameters in it.

    It is one such layer, except for the neighbours of model-parallel layers: there it may be several, or none.

    Attributes:
        layers: from the top down.
        messages: what this rank's gradients are called in events.
    """

    layers: Layers
    messages: frozenset[str]


class IterationSample(NamedTuple):
    """The times that a rank measured in an iteration.

    Attributes:
        backward: seconds of each segment's backward, from the top down.
        started: seconds in which the computing thread started exchanges.
        waited: seconds in which it waited for what backward did not hide.
        stages: seconds of exchange; by Place where the kind is ``after_backward``, otherwise of all together.
    """

    backward: tuple[float, ...]
    started: float
    waited: float
    stages: tuple[Stages, ...]

    @property
    def total(self) -> float:
        """T: the seconds of backward until all gradients are back."""
        return math.fsum(self.backward) + self.started + self.waited


def whole_net(layers: int) -> IterationKind:
    """Return a cut that has the whole net as one chunk."""
    return IterationKind((layers,))


def one_by_one(layers: int, after_backward: bool = False) -> IterationKind:
    """Return a cut that has every layer as a chunk."""
    return IterationKind((1,) * layers, after_backward)


def middle(layers: int) -> IterationKind:
    """Return a cut with about as many layers in a chunk as there are chunks."""
    return IterationKind(chunks(layers, max(1, round(math.sqrt(layers)))))


def kinds_of(layers: int) -> tuple[IterationKind, ...]:
    """Return the kinds of iterations that the cost model needs of a net with so many layers (at least one)."""
    kinds = whole_net(layers), one_by_one(layers, after_backward=True), one_by_one(layers), middle(layers)
    return tuple(dict.fromkeys(kinds))


def places_of(parallel: CutNet, net: Net, layers: Sequence[int]) -> tuple[ChunkSegment, ...]:
    """Return the segments of ``net``, cut into single layers, from the top down.

    Args:
        layers: those with trained parameters, by their number, from the top down.
    """
    segments = parallel.segments(net.graph, overlap=True, chunks=(1,) * len(layers))
    groups = parallel.groups(net, segments)
    sent = {id(p) for group in groups for bucket in group if bucket.comm.size > 1 for p in bucket.parameters}
    first: dict[int, int] = {}
    for param in net.graph.params:
        first[param.owner] = min(first.get(param.owner, param.layer), param.layer)
    elements = dict.fromkeys(first.values(), 0)
    for owner, layer in first.items():
        param = net.graph.params[owner]
        if net.holds(param) and id(net.value(param)) in sent:
            elements[layer] += net.value(param).numel()
    places = []
    for segment, group in zip(segments, groups, strict=True):
        inside = [layer for layer in layers if segment.start <= layer < segment.end]
        named = tuple((net.graph.nodes[layer].name, elements[layer]) for layer in inside)
        places.append(ChunkSegment(named, frozenset(bucket.label for bucket in group)))
    return tuple(reversed(places))


def layers_of_all(ranks: Sequence[Sequence[ChunkSegment]]) -> list[Layers]:
    """Return the layers of each place, with the element count of the rank that holds most of them."""
    return [
        tuple((of_ranks[0][0], max(elements for _, elements in of_ranks)) for of_ranks in zip(*layers, strict=True))
        for layers in zip(*([place.layers for place in places] for places in ranks), strict=True)
    ]


class Calibration:
    """Chooses how the next iteration trains, and records its times.

    Args:
        places: of this rank's net.
        kinds: to be tried in turn; each for WARM_UP iterations, and one that counts.
        rounds: how often.
        back: what to go back to in the end, if there is anything.

    Attributes:
        laps: what this rank has seen, by kind.
    """

    def __init__(
        self,
        places: Sequence[ChunkSegment],
        kinds: Sequence[IterationKind],
        rounds: int,
        back: IterationKind | None = None,
    ) -> None:
        assert kinds and rounds >= 1
        self.places = tuple(places)
        self.back = back
        self._turns = [kind for _ in range(rounds) for kind in kinds for _ in range(WARM_UP + 1)]
        self._number = 0
        self.laps: dict[IterationKind, list[IterationSample]] = {kind: [] for kind in kinds}

    @property
    def done(self) -> bool:
        """Whether all kinds of iterations have been measured."""
        return self._number == len(self._turns)

    @property
    def kind(self) -> IterationKind:
        """The way in which the next iteration trains."""
        return self._turns[self._number]

    @property
    def iterations(self) -> int:
        """The number of iterations of the calibration."""
        return len(self._turns)

    def record(self, totals: Mapping[Key, Traffic]) -> None:
        """Note an iteration.

        Args:
            totals: what its instructions and calls took, see Totals.
        """
        kind = self.kind
        if self._number % (WARM_UP + 1) == WARM_UP:
            self.laps[kind].append(lap_of(totals, self.places if kind.after_backward else ()))
        self._number += 1


def lap_of(totals: Mapping[Key, Traffic], places: Sequence[ChunkSegment] = ()) -> IterationSample:
    """Return the times of an iteration.

    Args:
        places: whose exchange is to be told apart, if any.
    """
    backward: dict[int, float] = {}
    started = waited = 0.0
    place_of = {message: number for number, place in enumerate(places) for message in place.messages}
    stages = [[0.0] * len(METHODS) for _ in range(len(places) or 1)]
    for (step, message, method), total in totals.items():
        match step:
            case InstructionStep(do.Backward | do.BackwardInputs | do.BackwardWeights, int(segment)) if not method:
                backward[segment] = backward.get(segment, 0.0) + total.seconds
            case InstructionStep(do.ExchangeGradients) if method in METHODS:
                stages[place_of[message] if places else 0][METHODS.index(method)] += total.seconds
            case InstructionStep(do.ExchangeGradients) if not method:
                started += total.seconds
            case InstructionStep(do.Wait) if not method:
                waited = total.seconds
    return IterationSample(
        backward=tuple(backward[segment] for segment in sorted(backward, reverse=True)),
        started=started,
        waited=waited,
        stages=tuple((d2h, accumulate, reduce, h2d) for d2h, accumulate, reduce, h2d in stages),
    )
