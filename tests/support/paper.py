"""Of the papers: AlexNet on four GPUs (CGDP, Tables 2 and 3) as costs in seconds; equations as written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bpt.parallel.cgdp.cost_model import ChunkCosts, TrainedLayerCost, synchronisation_time
from bpt.parallel.outer.update_factors import Normalizer, gamma, recency

# Table 3, from layer 8 down to layer 1: parameters in millions; copy to the CPU, accumulation, copy back in
# milliseconds.
TABLE_3 = (
    ("fc8", 4.0, 0.760, 1.263, 1.786),
    ("fc7", 16.8, 3.156, 4.441, 2.568),
    ("fc6", 37.8, 12.146, 13.074, 5.538),
    ("conv5", 0.4, 0.133, 0.285, 0.064),
    ("conv4", 0.7, 0.174, 0.465, 0.095),
    ("conv3", 0.9, 0.275, 0.578, 0.123),
    ("conv2", 0.3, 0.066, 0.155, 0.041),
    ("conv1", 0.03, 0.014, 0.018, 0.007),
)
# The paper tells backward's sum only. It is spread here as the layers' multiplications for one image (millions), which
# follow from AlexNet's shapes.
MULTIPLICATIONS = (4.1, 16.8, 37.7, 74.8, 112.1, 149.5, 223.9, 105.4)
BACKWARD_ORIGDP = 0.104  # Table 2, BVLC/Caffe
BACKWARD_CGDP = 0.111  # Table 2, TRL/Caffe
OVERHEAD_ORIGDP = 0.020 + 0.023  # Table 2, BVLC/Caffe: broadcast and grad-acc


def alexnet() -> ChunkCosts:
    """What makes backward longer under CGDP ("works between two consecutive layers", 5.2.4) is taken as t_as."""
    layers = tuple(
        TrainedLayerCost(
            name=name,
            elements=round(millions * 1e6),
            bp=BACKWARD_ORIGDP * work / sum(MULTIPLICATIONS),
            d2h=d2h / 1e3,
            accumulate=accumulate / 1e3,
            bc=bc / 1e3,
        )
        for (name, millions, d2h, accumulate, bc), work in zip(TABLE_3, MULTIPLICATIONS, strict=True)
    )
    return ChunkCosts(layers, per_chunk=(BACKWARD_CGDP - BACKWARD_ORIGDP) / len(layers))


def attenuation(base: int, newest: int, others: Iterable[int], normalizer: Normalizer = Normalizer.OTHERS) -> float:
    """γ_j^(k), the time attenuation factor (Eq. 9): e^(k/(i-1)) / Σ_j' e^(k'/(i-1)).

    Where Eq. 9 says nothing: k/(i-1) is 0 at the first version (i-1 = 0), and γ is 1 if there are no others.

    Args:
        base: k, the version that the submitted weights were trained from.
        newest: i-1, the newest version; none of the bases is newer.
        others: k', the versions that each of the other workers trains from.
        normalizer: whether the sum includes the worker itself.
    """
    assert 0 <= base <= newest, (base, newest)
    others = list(others)
    return gamma(base, newest, math.fsum(recency(other, newest) for other in others), normalizer) if others else 1.0


def simplified_overhead(costs: ChunkCosts, lengths: Sequence[int]) -> float:
    """Eq. 2: T_O if all exchange but that of the last chunk is hidden: the sum of t_as, and the last t_aa + t_bc."""
    last = list(costs.chunked(lengths))[-1:]
    return synchronisation_time(costs, lengths) + sum(chunk.aa + chunk.bc for chunk in last)
