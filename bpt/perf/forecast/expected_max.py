"""The expected maximum of random moments: synchronous ranks wait for the slowest."""

from __future__ import annotations

import numpy as np
import torch

from bpt.perf.forecast.rank_links import Floats

_FAR = 4.0  # standard deviations from the mean at which the distributions are cut off
_STEPS = 64  # steps of the integral


def expected_max(moments: Floats, noise: Floats) -> float:
    """Return the expected maximum of independent, normally distributed moments.

    It is an upper limit of the maximum, minus the integral of the maximum's distribution function up to this limit.
    That function is the product of the moments' distribution functions.

    Args:
        moments: (ranks,) the mean of each moment in seconds, or one mean for all ranks.
        noise: (ranks,) the standard deviation of each moment, relative to its mean.
    """
    latest = float(np.max(moments))
    if not noise.any() or not latest:
        return latest
    means, deviations = np.broadcast_arrays(moments, noise * moments)
    least, most = float((means - _FAR * deviations).max()), float((means + _FAR * deviations).max())
    counts = means + _FAR * deviations > least  # the others end before the latest one can
    varying = counts & (deviations > 0)
    fixed = float(means[counts & (deviations == 0)].max(initial=least))  # the maximum is not before any fixed moment
    grid = np.linspace(fixed, most, _STEPS + 1)
    away = torch.from_numpy((grid[:, None] - means[varying]) / deviations[varying])
    done = torch.special.log_ndtr(away).sum(1).exp()
    return most - float(torch.trapezoid(done, torch.from_numpy(grid)))
