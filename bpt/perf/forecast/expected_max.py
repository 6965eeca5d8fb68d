"""The expected maximum of random moments: synchronous ranks wait for the slowest."""

from __future__ import annotations

import numpy as np
import torch

from bpt.perf.forecast.rank_links import Floats

_FAR = 4.0  # standard deviations, beyond which nothing counts
_STEPS = 64  # of the integral


def expected_max(moments: Floats, noise: Floats) -> float:
    """Return the expected maximum of independent, normally distributed moments.

    It is the upper bound of the maximum, less the integral of its distribution, which is the product of theirs.

    Args:
        moments: (ranks,) their means in seconds, or one mean for all ranks.
        noise: (ranks,) their standard deviations, relative to the means.
    """
    latest = float(np.max(moments))
    if not noise.any() or not latest:
        return latest
    means, deviations = np.broadcast_arrays(moments, noise * moments)
    least, most = float((means - _FAR * deviations).max()), float((means + _FAR * deviations).max())
    counts = means + _FAR * deviations > least  # the others are over before the latest can be
    varying = counts & (deviations > 0)
    fixed = float(means[counts & (deviations == 0)].max(initial=least))  # the maximum is no earlier than fixed moments
    grid = np.linspace(fixed, most, _STEPS + 1)
    away = torch.from_numpy((grid[:, None] - means[varying]) / deviations[varying])
    done = torch.special.log_ndtr(away).sum(1).exp()
    return most - float(torch.trapezoid(done, torch.from_numpy(grid)))
