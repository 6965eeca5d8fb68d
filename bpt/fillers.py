"""Fillers: how a parameter blob, or a DummyData top, gets its first values (Caffe: filler.hpp).

A filler draws from the generator it is given and from nothing else, on one thread: equal generators give
equal values, whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bpt.errors import UserError
from bpt.proto import bpt_pb2 as pb
from bpt.registry import Registry

Filler = Callable[[Tensor, pb.FillerParameter, torch.Generator], None]

FILLERS: Registry[Filler] = Registry("filler type")


@torch.no_grad()
def fill(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Fill ``tensor`` in place as ``filler`` says; fields of other types are ignored, as in Caffe.

    Args:
        tensor: on the generator's device.
        generator: the only source of random numbers.

    Raises:
        UserError: the type is unknown, or it cannot fill a blob of this shape with these settings.
    """
    fill_as = FILLERS[filler.type]
    if filler.type != "gaussian" and filler.sparse != -1:
        raise _error(filler, "sparse goes with the gaussian filler only")
    if tensor.numel():
        fill_as(tensor, filler, generator)


@FILLERS.register("constant")
def constant(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """All elements ``value``."""
    tensor.fill_(filler.value)


@FILLERS.register("uniform")
def uniform(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Uniform in ``min`` … ``max``."""
    if filler.min > filler.max:
        raise _error(filler, f"min {filler.min:g} is larger than max {filler.max:g}")
    tensor.uniform_(filler.min, filler.max, generator=generator)


@FILLERS.register("gaussian")
def gaussian(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Normal with ``mean`` and ``std``.

    With ``sparse`` each element stays with probability ``sparse / shape[0]`` and is else 0: about
    ``sparse`` stay in each column, whichever axis counts the outputs.
    """
    if filler.std <= 0:
        raise _error(filler, f"std must be above 0, not {filler.std:g}")
    tensor.normal_(filler.mean, filler.std, generator=generator)
    if filler.sparse != -1:
        keep = torch.empty_like(tensor).uniform_(generator=generator) < _kept_share(tensor, filler)
        tensor.mul_(keep)


def _kept_share(tensor: Tensor, filler: pb.FillerParameter) -> float:
    outputs = _outputs(tensor, filler)
    if not 0 <= filler.sparse <= outputs:
        raise _error(
            filler, f"sparse {filler.sparse} is outside [0, {outputs}], axis 0 of a blob of shape {_shape(tensor)}"
        )
    return filler.sparse / outputs


@FILLERS.register("xavier")
def xavier(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Uniform in ± sqrt(3 / n), n as ``variance_norm`` says (Glorot and Bengio 2010)."""
    bound = math.sqrt(3 / _fan(tensor, filler))
    tensor.uniform_(-bound, bound, generator=generator)


@FILLERS.register("msra")
def msra(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Normal with variance 2 / n, n as ``variance_norm`` says (He, Zhang, Ren and Sun 2015)."""
    tensor.normal_(0, math.sqrt(2 / _fan(tensor, filler)), generator=generator)


@FILLERS.register("positive_unitball")
def positive_unitball(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """Uniform in 0 … 1, then divided so that ``tensor[i]`` sums to 1 for each i."""
    rows = torch.empty(_outputs(tensor, filler), tensor[0].numel(), dtype=tensor.dtype, device=tensor.device)
    rows.uniform_(generator=generator)
    sums = rows.cumsum(1, dtype=torch.float64)[:, -1:]  # unlike sum(), in one order on any number of threads
    tensor.copy_((rows / sums).view(tensor.shape))


@FILLERS.register("bilinear")
def bilinear(tensor: Tensor, filler: pb.FillerParameter, generator: torch.Generator) -> None:
    """The kernel with which a Deconvolution of stride f, kernel 2 f - f % 2 enlarges by interpolation."""
    if tensor.dim() != 4 or tensor.shape[2] != tensor.shape[3]:
        raise _error(filler, f"needs a blob with 4 axes and a square kernel, not shape {_shape(tensor)}")
    side = tensor.shape[3]
    factor = (side + 1) // 2
    centre = (side - 1) / (2 * factor)
    profile = 1 - (torch.arange(side, dtype=tensor.dtype) / factor - centre).abs()
    tensor.copy_(profile[:, None] * profile)


def _fan(tensor: Tensor, filler: pb.FillerParameter) -> float:
    """Caffe's fan for ``variance_norm``: axis 0 counts outputs and axis 1 inputs, in every layer type."""
    fan_in = tensor.numel() / _outputs(tensor, filler)
    fan_out = tensor.numel() / tensor.shape[1] if tensor.dim() > 1 else tensor.numel()
    return {
        pb.FillerParameter.FAN_IN: fan_in,
        pb.FillerParameter.FAN_OUT: fan_out,
        pb.FillerParameter.AVERAGE: (fan_in + fan_out) / 2,
    }[filler.variance_norm]


def _outputs(tensor: Tensor, filler: pb.FillerParameter) -> int:
    if tensor.dim() == 0:
        raise _error(filler, "needs a blob with at least one axis, not a scalar")
    return tensor.shape[0]


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _error(filler: pb.FillerParameter, message: str) -> UserError:
    return UserError(f"{filler.type} filler: {message}")
