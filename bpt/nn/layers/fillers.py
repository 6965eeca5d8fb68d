"""Fillers: the first values of a parameter blob or of a DummyData top (Caffe: filler.hpp).

Values are drawn in blocks of whole rows (axis 0), each from its own generator. So any slice of a blob has the values
that it has in the whole, which never has to be allocated. The number of threads does not matter either. Values are
drawn in float32, so that a run begins the same in any precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from bpt.base.errors import UserError
from bpt.base.registry import Registry
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Shape
from bpt.graph.part import BlobSlice

BLOCK = 2**16  # elements that are drawn from one generator
_LARGEST = torch.finfo(torch.float32).max

Draw = Callable[[Tensor, torch.Generator], None]
"""A function that fills some rows of a blob, which have all its axes, and draws only from the generator."""

Filler = Callable[[pb.FillerParameter, Shape], Draw]
"""A function that makes the Draw for a blob of this shape; it raises a UserError if the settings do not fit."""

FILLERS: Registry[Filler] = Registry("filler type")


@torch.no_grad()
def fill(
    tensor: Tensor,
    filler: pb.FillerParameter,
    generator: torch.Generator,
    whole: Shape | None = None,
    part: BlobSlice | None = None,
) -> None:
    """Fill ``tensor`` in place as ``filler`` says. Fields of other filler types are ignored, as in Caffe.

    Args:
        tensor: the values to fill, on the generator's device.
        filler: the filler of the text.
        generator: its seed is the only source of random numbers; earlier draws from it do not matter.
        whole: the shape of the blob of which ``tensor`` is a slice. By default it is the blob.
        part: the slice; ``None`` means all of the blob.

    Raises:
        UserError: the type is unknown, or it cannot fill a blob of this shape with these settings. An empty slice
            raises it, too, so that all ranks find the same error.
    """
    make = FILLERS[filler.type]
    if filler.type != "gaussian" and filler.sparse != -1:
        raise _error(filler, "sparse goes with the gaussian filler only")
    shape = tuple(tensor.shape) if whole is None else whole
    if not math.prod(shape):
        return
    draw = make(filler, shape)
    if tensor.numel():
        # A scalar counts as a blob of one row.
        _draw_blocks(tensor.detach().view(tensor.shape or (1,)), draw, generator, shape or (1,), part)


def _draw_blocks(target: Tensor, draw: Draw, generator: torch.Generator, whole: Shape, part: BlobSlice | None) -> None:
    """Fill ``target``, which is ``part`` of a blob of shape ``whole``, from the blocks that it overlaps."""
    by_rows = part is None or part.axis == 0
    first, last = (part.start, part.stop) if part and by_rows else (0, whole[0])
    columns = part.index(len(whole)) if part and not by_rows else ...
    size = max(1, BLOCK // math.prod(whole[1:]))

    def draw_block(number: int) -> None:
        start, stop = number * size, min(whole[0], (number + 1) * size)
        below, above = max(start, first), min(stop, last)
        wanted = target[below - first : above - first]
        fits = wanted.dtype == torch.float32 and wanted.shape == (stop - start, *whole[1:])
        drawn_in_place = fits and wanted.is_contiguous()
        rows = wanted if drawn_in_place else target.new_empty((stop - start, *whole[1:]), dtype=torch.float32)
        draw(rows, _generator_of_block(number, generator))
        if not drawn_in_place:
            wanted.copy_(rows[below - start : above - start][columns])

    blocks = range(first // size, (last - 1) // size + 1)
    threads = min(torch.get_num_threads(), len(blocks)) if target.device.type == "cpu" else 1

    def draw_some(thread: int) -> None:
        for number in blocks[thread::threads]:
            draw_block(number)

    if threads == 1:
        draw_some(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(draw_some, range(threads)))


def _generator_of_block(number: int, generator: torch.Generator) -> torch.Generator:
    # The first block draws the numbers of the generator itself; most blobs have only one block.
    seed = generator.initial_seed()
    return torch.Generator(generator.device).manual_seed(derive_seed(seed, "block", number) if number else seed)


@FILLERS.register("constant")
def constant(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Set all elements to ``value``."""

    def draw(rows: Tensor, generator: torch.Generator) -> None:
        rows.fill_(filler.value)

    return draw


@FILLERS.register("uniform")
def uniform(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Draw uniformly from ``min`` to ``max``."""
    if not (math.isfinite(filler.min) and math.isfinite(filler.max) and filler.max - filler.min < _LARGEST):
        raise _error(filler, f"min {filler.min:g}, max {filler.max:g}: no finite range of float32")
    if filler.min > filler.max:
        raise _error(filler, f"min {filler.min:g} is larger than max {filler.max:g}")
    return _uniform(filler.min, filler.max)


@FILLERS.register("gaussian")
def gaussian(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Draw from the normal distribution with ``mean`` and ``std``.

    With ``sparse`` each element stays with probability ``sparse / shape[0]`` and is otherwise 0. So about ``sparse``
    elements stay in each column, whichever axis counts the outputs.
    """
    if not filler.std > 0:  # NaN is refused, too
        raise _error(filler, f"std must be above 0, not {filler.std:g}")
    normal = _normal(filler.mean, filler.std)
    if filler.sparse == -1:
        return normal
    kept = _kept_share(filler, shape)

    def draw(rows: Tensor, generator: torch.Generator) -> None:
        normal(rows, generator)
        rows.mul_(torch.empty_like(rows).uniform_(generator=generator) < kept)

    return draw


def _kept_share(filler: pb.FillerParameter, shape: Shape) -> float:
    outputs = _outputs(filler, shape)
    if not 0 <= filler.sparse <= outputs:
        raise _error(filler, f"sparse {filler.sparse} is outside [0, {outputs}], axis 0 of a blob of shape {shape}")
    return filler.sparse / outputs


@FILLERS.register("xavier")
def xavier(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Draw uniformly from ± sqrt(3 / n), with n by ``variance_norm`` (Glorot and Bengio 2010)."""
    bound = math.sqrt(3 / _fan(filler, shape))
    return _uniform(-bound, bound)


@FILLERS.register("msra")
def msra(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Draw from the normal distribution of variance 2 / n, n by ``variance_norm`` (He, Zhang, Ren and Sun 2015)."""
    return _normal(0, math.sqrt(2 / _fan(filler, shape)))


@FILLERS.register("positive_unitball")
def positive_unitball(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Draw uniformly from 0 to 1, then divide so that ``tensor[i]`` sums to 1 for each i."""
    _outputs(filler, shape)

    def draw(rows: Tensor, generator: torch.Generator) -> None:
        flat = rows.uniform_(generator=generator).view(len(rows), -1)
        sums = flat.cumsum(1, dtype=torch.float64)[:, -1:]  # unlike sum(), in one order on any number of threads
        flat.copy_(flat / sums)

    return draw


@FILLERS.register("bilinear")
def bilinear(filler: pb.FillerParameter, shape: Shape) -> Draw:
    """Set the kernel with which a Deconvolution of stride f and kernel 2 f - f % 2 enlarges by interpolation."""
    if len(shape) != 4 or shape[2] != shape[3]:
        raise _error(filler, f"needs a blob with 4 axes and a square kernel, not shape {shape}")
    side = shape[3]
    factor = (side + 1) // 2
    centre = (side - 1) / (2 * factor)

    def draw(rows: Tensor, generator: torch.Generator) -> None:
        profile = 1 - (torch.arange(side, dtype=rows.dtype) / factor - centre).abs()
        rows.copy_(profile[:, None] * profile)

    return draw


def _uniform(least: float, most: float) -> Draw:
    def draw(rows: Tensor, generator: torch.Generator) -> None:
        rows.uniform_(least, most, generator=generator)

    return draw


def _normal(mean: float, std: float) -> Draw:
    def draw(rows: Tensor, generator: torch.Generator) -> None:
        rows.normal_(mean, std, generator=generator)

    return draw


def _fan(filler: pb.FillerParameter, shape: Shape) -> float:
    """Return Caffe's fan for ``variance_norm``: axis 0 counts outputs and axis 1 inputs, in every layer type."""
    fan_in = math.prod(shape) / _outputs(filler, shape)
    fan_out = math.prod(shape) / shape[1] if len(shape) > 1 else math.prod(shape)
    return {
        pb.FillerParameter.FAN_IN: fan_in,
        pb.FillerParameter.FAN_OUT: fan_out,
        pb.FillerParameter.AVERAGE: (fan_in + fan_out) / 2,
    }[filler.variance_norm]


def _outputs(filler: pb.FillerParameter, shape: Shape) -> int:
    if not shape:
        raise _error(filler, "needs a blob with at least one axis, not a scalar")
    return shape[0]


def _error(filler: pb.FillerParameter, message: str) -> UserError:
    return UserError(f"{filler.type} filler: {message}")
