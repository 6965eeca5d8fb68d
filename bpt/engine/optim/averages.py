"""The average of the weights over iterations: a moving one (EMA), or the plain mean of many (SWA).

The average generalises better than the last weights ("Averaging Weights Leads to Wider Optima", Izmailov et al., 2018).
All blobs are averaged, also the statistics of a BatchNorm. The average is one more tensor among the moments of each
blob, so slices, snapshots and lost ranks are handled as those of moments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from bpt.base.violation import Violation, check_range
from bpt.config.optim_spec import AverageSpec, OptimSpec
from bpt.config.proto import bpt_pb2 as pb


def num_averaged(spec: AverageSpec, iteration: int) -> int:
    """Return how many weights are in the average after so many iterations."""
    return 0 if iteration < spec.start else (iteration - spec.start) // spec.interval + 1


def is_due(spec: AverageSpec, iteration: int) -> bool:
    """Return whether the average includes the weights after so many iterations."""
    return iteration >= spec.start and (iteration - spec.start) % spec.interval == 0


@torch.no_grad()
def update_average(spec: AverageSpec, averages: Sequence[Tensor], weights: Sequence[Tensor], iteration: int) -> None:
    """Add the weights after so many iterations, which are due, to the average.

    The first weights are the average. From then on EMA has ``average ← decay · average + (1 - decay) · weights``, and
    SWA gives the n-th weights the weight 1/n (torch: AveragedModel, with get_ema_multi_avg_fn or without).
    """
    number = num_averaged(spec, iteration)
    if number == 1 or not averages:
        torch._foreach_copy_(list(averages), list(weights))
        return
    weight = 1 - spec.decay if spec.kind == pb.AverageParameter.EMA else 1 / number
    torch._foreach_lerp_(list(averages), list(weights), weight)


def violations(spec: OptimSpec) -> Iterator[Violation]:
    """Yield which of the settings make no sense."""
    if spec.averages:
        yield from check_range(spec.average_param, "decay", "average_param", least=0, below=1)
        for field in ("start", "interval"):
            yield from check_range(spec.average_param, field, "average_param", least=1)
