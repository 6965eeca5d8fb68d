"""The freedoms that pycaffe's users have in writing arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bpt.errors import UserError
from bpt.proto import bpt_pb2 as pb

Path = str | os.PathLike[str]


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """A single name stands for a list of one."""
    return (given,) if isinstance(given, str) else tuple(given)


def phase_and_weights(second: int | Path, third: int | Path | None) -> tuple[int, str | None]:
    """Phase and weights, in whichever order they stand: ``Net(path, weights, phase)`` is pycaffe's old one."""
    phase, weights = (second, third) if isinstance(second, int) else (third, second)
    if not isinstance(phase, int) or phase not in (pb.TRAIN, pb.TEST):
        raise UserError(f"phase must be bpt.TRAIN or bpt.TEST, not {phase!r}")
    if isinstance(weights, int):
        raise UserError(f"weights must be the path of a file, not {weights!r}")
    return phase, None if weights is None else os.fspath(weights)
