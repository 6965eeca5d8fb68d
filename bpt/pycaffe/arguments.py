"""The freedoms that pycaffe's users have in writing arguments."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from bpt.errors import UnknownNameError, UserError
from bpt.proto import bpt_pb2 as pb

T = TypeVar("T")

Path = str | os.PathLike[str]
_MOST_LISTED = 20  # names that a message lists


def several(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """A single name stands for a list of one, ``None`` for none."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


class Named(dict[str, T]):
    """A dict that explains a name that it does not have by an UnknownNameError, which is a KeyError.

    Args:
        entries: what it holds.
        what: begins that message: "the net has no blob".
    """

    def __init__(self, entries: dict[str, T], what: str) -> None:
        super().__init__(entries)
        self._what = what

    def __missing__(self, name: object) -> T:
        listed = f" (it has: {', '.join(self) or 'none'})" if len(self) <= _MOST_LISTED else ""
        shown = f'"{name}"' if isinstance(name, str) else repr(name)
        raise UnknownNameError(f"{self._what} {shown}", str(name), self, listed)


def checked_phase(phase: object) -> int:
    """``phase`` if it is one; a UserError otherwise."""
    if isinstance(phase, int) and phase in (pb.TRAIN, pb.TEST):
        return phase
    raise UserError(f"phase must be bpt.TRAIN or bpt.TEST, not {phase!r}")


def phase_and_weights(second: int | Path | None, third: int | Path | None) -> tuple[int, str | None]:
    """Phase and weights, in whichever order they stand: ``Net(path, weights, phase)`` is pycaffe's old one."""
    if second is None and third is None:
        raise UserError("a Net needs its phase: bpt.Net(path, bpt.TRAIN) or bpt.Net(path, bpt.TEST)")
    in_old_order = not isinstance(second, int) and isinstance(third, int)
    phase, weights = (third, second) if in_old_order else (second, third)
    phase = checked_phase(phase)
    if weights is not None and not isinstance(weights, str | os.PathLike):
        raise UserError(f"weights must be the path of a file, not {weights!r}")
    return phase, None if weights is None else os.fspath(weights)


def checked_device(device: torch.device | str) -> torch.device:
    """The device that is meant; a UserError if there is none of that name, or none in this machine."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise UserError(f'device must be "cpu", "cuda" or "cuda:1", say; not {device!r}')
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f'device "{device}": this machine has {torch.cuda.device_count()} usable CUDA devices; use "cpu"'
        )
    return chosen


def checked_count(count: int, what: str) -> int:
    """``count`` as an int; a UserError about ``what`` if it is no whole number from 0 on."""
    try:
        number = operator.index(count)
    except TypeError:
        number = -1
    if number < 0:
        raise UserError(f"{what} must be a whole number from 0 on, not {count!r}")
    return number


def floats(value: npt.ArrayLike, what: str, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.floating[Any]]:
    """``value`` as an array of ``dtype``; a UserError about ``what`` if it holds no numbers."""
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be an array of numbers: {error}") from None
