"""Numbers in the data that are not finite: told as the data's, before a loss of NaN is all that is known.

They end nothing: a net may know what to do with them, as Caffe's do that mask NaN. Only floats are looked at, as bytes
are always finite, and by a sum: in the thread that reads ahead, for about as long as it takes to copy them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

LOG = logging.getLogger("bpt")
ANY_RANK = logging.CRITICAL + 10
"""The level of warnings that are logged on whatever rank: but for the first, they log nothing below."""
logging.addLevelName(ANY_RANK, "Warning of any rank")

_MOST = 3  # that are told of a source


def all_finite(values: NDArray[np.generic]) -> bool:
    """Return whether there is neither NaN nor infinity in ``values``."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of finite numbers may overflow, but one of others is never finite.
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


class FiniteWatch:
    """Tells the first places of a source that have numbers which are not finite, each once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def check(self, values: NDArray[np.generic], name: Callable[[], str]) -> None:
        """Warn if not all of ``values``, one sample, are finite; ``name`` says where they are from."""
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
            "; further ones are not told" if len(self._reported) == _MOST else "",
        )
