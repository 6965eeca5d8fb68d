"""The costs of the layers for CGDP's cost model (section 3.2), made of what a calibration has seen on all ranks.

What is measured, and how it becomes the paper's times. Ranks wait for each other, so of what they do at the same time
the slowest counts; and of the rounds of a calibration the median.

- T_BP: backward with the net as one chunk, where no exchange disturbs it. A layer's t_bp: its backward with all exchange
  apart, less an equal part for each layer of what cutting the net costs, so that the sum is T_BP.
- d2h, accumulate, reduce, bc: how the stages of the exchange, measured with the net as one chunk, divide among the layers
  when these are exchanged one by one after backward. Waiting for other ranks is in none of them.
- t_as: by how much T of single layers, and of about sqrt(l) chunks, exceeds Eq. 1 without t_as. It has two parts: so much
  a chunk (``per_chunk``: starting the exchange, cutting the net), and ``held``, so much of the exchange of all chunks but
  the last: the part of it that is done by cores that would compute. Both are fitted by least squares of relative errors.

``held`` is about 1 where all cores compute, as with one rank a core on a CPU: then nothing is hidden, whatever overlaps.
It is about 0 on a GPU. Eq. 1 knows t_as of a chunk, but not when a hold-up begins. So the ``held`` part of an exchange is
taken out of t_aa and t_bc and counted as t_as of its chunk, which gives the same T.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from bpt.schedule.cost_model import Costs, LayerCost, backward_time, original_backward_time
from bpt.solvers.ranks.calibration import Kind, Lap, Place, kinds_of, one_by_one, whole_net

Laps = Mapping[Kind, Sequence[Lap]]


@dataclass(frozen=True)
class Seen:
    """What was measured of a kind of iteration, in seconds.

    Attributes:
        total: T, from the start of backward until all gradients are back; the mean of the ranks.
        waited: the part of it that neither backward nor starting exchanges took.
    """

    total: float
    waited: float


@dataclass(frozen=True)
class Measured:
    """The costs of a net's layers, and what the calibration saw of T.

    Attributes:
        layers: as measured, from the top down: nothing of their exchange is counted as t_as.
        per_chunk: the part of t_as that each chunk has.
        held: the part of an exchange, 0 to 1, that holds backward up; see the file's docstring.
        seen: kinds of iterations, with their times.
    """

    layers: tuple[LayerCost, ...]
    per_chunk: float
    held: float
    seen: Mapping[Kind, Seen]

    @property
    def exchange(self) -> float:
        """Seconds of all exchange: the sum of t_aa + t_bc; T'_O of OrigDP."""
        return math.fsum(layer.aa + layer.bc for layer in self.layers)

    @property
    def costs(self) -> Costs:
        """For predictions of T."""
        return _costs(self.layers, self.per_chunk, self.held)

    @property
    def original(self) -> float:
        """T' of OrigDP, predicted: backward, and then all exchange."""
        return original_backward_time(Costs(self.layers))


def measured(places: Sequence[Place], ranks: Sequence[Laps], passes: int = 1) -> Measured:
    """The costs of the layers in ``places``.

    Args:
        ranks: for each rank what it saw; at least the kinds of ``kinds_of``.
        passes: of an iteration. Only the last one's backward is overlapped; the costs are those of one pass, and T is
            an iteration's without the other passes.
    """
    count = sum(len(place.layers) for place in places)
    whole, apart = whole_net(count), one_by_one(count, apart=True)
    computing = _over_ranks(max, ranks, whole, lambda lap: math.fsum(lap.backward)) / passes
    stages = [
        _over_ranks(max, ranks, whole, lambda lap, stage=stage: math.fsum(part[stage] for part in lap.stages))  # type: ignore[misc]
        for stage in range(4)
    ]
    backward = _slowest(ranks[rank][apart] for rank in range(len(ranks)))
    ...
    raise NotImplementedError
