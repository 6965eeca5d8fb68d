"""Reports numbers in the data that are not finite, because a loss of NaN alone would not show their source.

They do not end the run: some of Caffe's nets mask NaN, for example. Only floats are checked, because bytes are always
finite. The prefetching thread checks them by a sum, which takes about as long as a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

LOG = logging.getLogger("bpt")
ANY_RANK = logging.CRITICAL + 10
"""The level of warnings that every rank logs; ranks other than the first log nothing below it."""
logging.addLevelName(ANY_RANK, "Warning of any rank")

_MOST = 3  # warnings for a source


def all_finite(values: NDArray[np.generic]) -> bool:
    """Return whether there is neither NaN nor infinity in ``values``."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum with NaN or infinity is never finite; a sum of finite numbers may overflow, so that needs another check.
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


class FiniteWatch:
    """Warns of the first samples of a source that have non-finite numbers, once for each."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def check(self, values: NDArray[np.generic], name: Callable[[], str]) -> None:
        """Warn if a sample's ``values`` are not all finite; ``name`` returns the sample's source for the warning."""
        if len(self._reported) >= _MOST or all_finite(values) or (place := name()) in self._reported:
            return
        self._reported.add(place)
        bad = values.size - int(np.count_nonzero(np.isfinite(values)))
        LOG.log(
            ANY_RANK,
            "%s: %d of %d numbers in the data %s NaN or infinite: if the loss is not finite, this is why%s",
            place,
            bad,
            values.size,
            "is" if bad == 1 else "are",
            "; further ones are not reported" if len(self._reported) == _MOST else "",
        )
