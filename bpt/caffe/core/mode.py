"""pycaffe's settings: the device of nets, and the seed that they draw from, unless a call or a text says otherwise.

They hold for the whole process, as in Caffe, and for nets and solvers that are made from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bpt.apps.arguments import checked_count, checked_device
from bpt.base.errors import UserError
from bpt.system.device import CPU


@dataclass
class Mode:
    """The mode and the GPU that a program has set; ``None`` if it has set none."""

    device: torch.device | None = None
    gpu: int = 0
    seed: int | None = None


_MODE = Mode()


def set_mode_cpu() -> None:
    """Compute on the CPU, whatever the solver's text says."""
    _MODE.device = CPU


def set_mode_gpu() -> None:
    """Compute on the GPU that ``set_device`` has named (0 unless it has), whatever the solver's text says.

    Raises:
        UserError: this machine has no such GPU.
    """
    _MODE.device = _gpu(_MODE.gpu)


def set_device(number: int) -> None:
    """Set the GPU that ``set_mode_gpu`` means; this alone does not switch to it.

    Raises:
        UserError: in the mode GPU: this machine has no such GPU.
    """
    number = checked_count(number, "set_device: the number of a GPU")
    if _MODE.device is not None and _MODE.device.type == "cuda":
        _MODE.device = _gpu(number)
    _MODE.gpu = number


def set_random_seed(seed: int) -> None:
    """Set the seed of fillers and dropout, in nets and in solvers whose text has no ``random_seed``.

    Nets that are made one after the other begin alike: no generator is global.
    """
    _MODE.seed = checked_count(seed, "set_random_seed: the seed")


def chosen_device() -> torch.device | None:
    """Return that of ``set_mode_cpu`` or ``set_mode_gpu``; ``None``: neither was called."""
    return _MODE.device


def chosen_seed() -> int | None:
    """Return that of ``set_random_seed``; ``None``: it was not called."""
    return _MODE.seed


def _gpu(number: int) -> torch.device:
    try:
        return checked_device(f"cuda:{number}")
    except UserError as error:
        raise UserError(f"set_mode_gpu: {error}, that is set_mode_cpu()") from None
