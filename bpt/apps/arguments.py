"""Check and convert arguments that pycaffe's users may write in several forms."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from bpt.base.errors import UnknownNameError, UserError
from bpt.config.proto import bpt_pb2 as pb

T = TypeVar("T")

Path = str | os.PathLike[str]
_LARGEST = 2**31 - 1  # extent of an axis
_LONGEST = 60  # characters of a value that a message shows
_MOST_LISTED = 20  # names that a message lists


def several(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return ``given`` as a tuple; a single name becomes a tuple of one, ``None`` an empty one."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


class Named(dict[str, T]):
    """A dict that raises an UnknownNameError (a KeyError) with a hint for a name that it does not have.

    Args:
        entries: the entries.
        what: the beginning of the message, such as "the net has no blob".
    """

    def __init__(self, entries: dict[str, T], what: str) -> None:
        super().__init__(entries)
        self._what = what

    def __missing__(self, name: object) -> T:
        shown = f'"{name}"' if isinstance(name, str) else repr(name)
        raise UnknownNameError(f"{self._what} {shown}", str(name), self, listed(self))


def listed(names: Collection[str]) -> str:
    """Return the ``names`` as the end of a message; "" if there are too many."""
    return f" (it has: {', '.join(names) or 'none'})" if len(names) <= _MOST_LISTED else ""


def checked_phase(phase: object) -> int:
    """Return ``phase``; raise a UserError if it is no phase."""
    if isinstance(phase, int) and not isinstance(phase, bool) and phase in (pb.TRAIN, pb.TEST):
        return phase
    raise UserError(f"phase must be bpt.TRAIN or bpt.TEST, not {phase!r}")


def phase_and_weights(second: int | Path | None, third: int | Path | None) -> tuple[int, str | None]:
    """Return phase and weights, which may come in either order: ``Net(path, weights, phase)`` is pycaffe's old one."""
    if second is None and third is None:
        raise UserError("a Net needs its phase: bpt.Net(path, bpt.TRAIN) or bpt.Net(path, bpt.TEST)")
    in_old_order = not isinstance(second, int) and isinstance(third, int)
    phase, weights = (third, second) if in_old_order else (second, third)
    phase = checked_phase(phase)
    if weights is not None and not isinstance(weights, str | os.PathLike):
        raise UserError(f"weights must be the path of a file, not {weights!r}")
    return phase, None if weights is None else os.fspath(weights)


def checked_device(device: torch.device | str) -> torch.device:
    """Return the device; raise a UserError if the name is wrong or this machine has no such device."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise UserError(f'device must be "cpu", "cuda" or "cuda:1", say; not {device!r}')
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f'device "{device}": this machine has {torch.cuda.device_count()} usable CUDA devices; use "cpu"'
        )
    return chosen


def checked_whole(given: object, what: str) -> int:
    """Return ``given`` as an int; raise a UserError about ``what`` if it is no whole number that 32 bits hold."""
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) <= _LARGEST:
        return given
    raise UserError(f"{what} must be a whole number, not {shown(given)}")


def checked_count(count: int, what: str) -> int:
    """Return ``count`` as an int; raise a UserError about ``what`` if it is no whole number from 0 on."""
    try:
        number = operator.index(count)
    except TypeError:
        number = -1
    if not 0 <= number <= _LARGEST:
        raise UserError(f"{what} must be a whole number from 0 on, not {shown(count)}")
    return number


def floats(value: npt.ArrayLike, what: str, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.floating[Any]]:
    """Return ``value`` as an array of ``dtype``; raise a UserError about ``what`` if it is no array of numbers."""
    try:
        if np.iscomplexobj(value):
            raise TypeError("it holds complex ones")
        return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{what} must be an array of numbers: {error}") from None


def checked_path(path: object, what: str) -> str:
    """Return ``path`` as text; raise a UserError about ``what`` if it is no path of a file."""
    if isinstance(path, str | os.PathLike) and isinstance(name := os.fspath(path), str):
        return name
    raise UserError(f"{what} must be the path of a file, not {shown(path)}")


def checked_names(given: object, what: str) -> tuple[str, ...]:
    """Return the one or several names ``given`` as a tuple; raise a UserError about ``what`` for anything else."""
    if given is None or isinstance(given, str):
        return several(given)
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) and _has_axes(given) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise UserError(f"{what} must be a name or a list of names, not {shown(given)}")
    return names


def checked_number(given: Any, what: str) -> float:
    """Return ``given`` as a float; raise a UserError about ``what`` if it is no finite number."""
    if not isinstance(given, str | bytes | list | tuple) and getattr(given, "shape", ()) == ():
        try:
            number = float(given)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise UserError(f"{what} must be a number, not {shown(given)}")


def checked_sizes(given: Any, what: str, count: int | None = None, least: int = 0) -> tuple[int, ...]:
    """Return ``given`` as whole numbers; raise a UserError about ``what`` if they are not or not ``count`` of them."""
    try:
        sizes = tuple(operator.index(size) for size in given)
    except (TypeError, ValueError):
        sizes = (least - 1,)
    if any(not least <= size <= _LARGEST for size in sizes) or (count is not None and len(sizes) != count):
        number = "" if count is None else f"{count} "
        raise UserError(f"{what} must be {number}whole numbers from {least} on, not {shown(given)}")
    return sizes


def checked_image(given: Any, what: str, channels: int | None = None) -> npt.NDArray[np.float32]:
    """Return ``given`` as a float32 image (height, width, channels); raise a UserError about ``what`` if it is none."""
    image = floats(given, what)
    if image.ndim != 3 or not image.size:
        raise UserError(f"{what} must be an array (height, width, channels), not one of shape {image.shape}")
    if channels is not None and image.shape[2] != channels:
        raise UserError(f"{what} has {image.shape[2]} channels, shape {image.shape}; the net takes {channels}")
    return image


def checked_images(given: Any, what: str, channels: int | None = None) -> list[npt.NDArray[np.float32]]:
    """Return the images of a list by ``checked_image``; raise a UserError about ``what`` if the list has none."""
    if isinstance(given, np.ndarray) and given.ndim == 3:
        raise UserError(f"{what} must be a list of images; given one of shape {given.shape}: write [image]")
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable) or not _has_axes(given):
        raise UserError(f"{what} must be a list of images (height, width, channels), not {shown(given)}")
    images = [checked_image(image, f"{what}: image {index}", channels) for index, image in enumerate(given)]
    if not images:
        raise UserError(f"{what} must be a list of images; it is empty")
    return images


def checked_call(given: object, what: str) -> None:
    """Raise a UserError about ``what`` if ``given`` is not callable."""
    if not callable(given):
        raise UserError(f"{what} must be a function, not {shown(given)}")


def checked_kind(given: object, kind: type[T], what: str) -> T:
    """Return ``given``; raise a UserError about ``what`` if it is no ``kind``."""
    if not isinstance(given, kind):
        raise UserError(f"{what} must be a {kind.__name__}, not {shown(given)}")
    return given


def shown(given: object) -> str:
    """Return a short text for ``given`` in messages: an array's shape, the text of a short value, or the type."""
    if isinstance(given, np.ndarray):
        return f"an array of shape {given.shape}"
    text = repr(given) if given is None or isinstance(given, str | bytes | int | float | tuple | list | dict) else ""
    return text if text and len(text) <= _LONGEST and "\n" not in text else f"a {type(given).__name__}"


def _has_axes(given: object) -> bool:
    return not (isinstance(given, np.ndarray) and given.ndim == 0)
