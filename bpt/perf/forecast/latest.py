"""When the last of several ranks is done, if the times of each vary by themselves."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FAR = 4.0  # standard deviations, beyond which nothing counts
_STEPS = 64  # of the integral


def expected_max(moments: Floats, noise: Floats) -> float:
    """Return the mean of the latest of independent, normally distributed moments.

    The mean of a maximum is its upper bound less the integral of its distribution, which is the product of theirs.

    Args:
        moments: (ranks,) seconds, their means; one for all of them will do.
        noise: (ranks,) their standard deviations, as parts of these.
    """
    latest = float(np.max(moments))
    if not noise.any() or not latest:
        return latest
    means, deviations = np.broadcast_arrays(moments, noise * moments)
    least, most = float((means - _FAR * deviations).max()), float((means + _FAR * deviations).max())
    counts = means + _FAR * deviations > least  # the others are done before the latest can be
    varying = counts & (deviations > 0)
    fixed = float(means[counts & (deviations == 0)].max(initial=least))  # nothing is done before those that do not vary
    grid = np.linspace(fixed, most, _STEPS + 1)
    away = torch.from_numpy((grid[:, None] - means[varying]) / deviations[varying])
    done = torch.special.log_ndtr(away).sum(1).exp()
    return most - float(torch.trapezoid(done, torch.from_numpy(grid)))
