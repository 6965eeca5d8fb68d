"""pycaffe's global settings: the default device and the default random seed of nets and solvers.

As in Caffe, a setting holds for the whole process, for nets and solvers that are made after it was set.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bpt.apps.arguments import checked_count, checked_device
from bpt.base.errors import UserError
from bpt.system.device import CPU


@dataclass
class Mode:
    """The device, the GPU number and the seed that a program has set; ``None`` if it has not set them."""

    device: torch.device | None = None
    gpu: int = 0
    seed: int | None = None


_MODE = Mode()


def set_mode_cpu() -> None:
    """Compute on the CPU, whatever the solver's text says."""
    _MODE.device = CPU


def set_mode_gpu() -> None:
    """Compute on the GPU that ``set_device`` has chosen (default 0), whatever the solver's text says.

    Raises:
        UserError: this machine has no such GPU.
    """
    _MODE.device = _gpu(_MODE.gpu)


def set_device(number: int) -> None:
    """Choose the GPU for ``set_mode_gpu``; this alone does not switch from the CPU to it.

    Raises:
        UserError: the mode is GPU already, and this machine has no such GPU.
    """
    number = checked_count(number, "set_device: the number of a GPU")
    if _MODE.device is not None and _MODE.device.type == "cuda":
        _MODE.device = _gpu(number)
    _MODE.gpu = number


def set_random_seed(seed: int) -> None:
    """Set the seed of fillers and dropout, for nets and for solvers whose text has no ``random_seed``.

    Each net has its own random generator, so two nets of one text begin with the same parameters.
    """
    _MODE.seed = checked_count(seed, "set_random_seed: the seed")


def chosen_device() -> torch.device | None:
    """Return the device of ``set_mode_cpu`` or ``set_mode_gpu``, or ``None`` if neither was called."""
    return _MODE.device


def chosen_seed() -> int | None:
    """Return the seed of ``set_random_seed``, or ``None`` if it was not called."""
    return _MODE.seed


def _gpu(number: int) -> torch.device:
    try:
        return checked_device(f"cuda:{number}")
    except UserError as error:
        raise UserError(f"set_mode_gpu: {error}, that is set_mode_cpu()") from None
