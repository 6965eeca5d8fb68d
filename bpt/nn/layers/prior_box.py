"""PriorBox: the prior boxes at each place of a feature map, relative to which a net describes objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.detection.priors import aspect_ratios, dense_priors, prior_boxes, prior_sizes
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Layer
from bpt.nn.pass_context import PassContext

FIELD = "prior_box_param"
VARIANCE = 0.1
SPELLINGS = {
    "fixed_size": ("fixed_sizes",),
    "fixed_ratio": ("fixed_ratios",),
    "density": ("densitys", "densities"),
}
"""FaceBoxes' fields and their names in other texts."""


@LAYERS.register("PriorBox")
class PriorBox(Layer):
    """Prior boxes (xmin, ymin, xmax, ymax, in parts of the image) and their variances: top ``(1, 2, boxes · 4)``.

    Bottoms: a feature map ``(N, C, rows, columns)`` and the images ``(N, C, height, width)``, of which only the shapes
    count. Places follow row by row. Each ``min_size`` (in pixels) gives a square, then one of the geometric mean with
    its ``max_size`` if there is one. Then follows a box of each ``aspect_ratio``, and with ``flip`` of its inverse. The
    centre lies ``offset`` (default 0.5) of a ``step`` after the start of the place. ``step`` is by default the number
    of pixels of a place. ``variance``: four numbers, or one for all, by default 0.1; the net describes differences in
    these units. The text may give the size of images by ``img_size``, or ``img_h`` and ``img_w``, instead of the
    bottom.

    FaceBoxes' dense boxes come before these: for each ``fixed_size``, ``density`` rows of ``density`` boxes within the
    place. Squares are first, then boxes of each ``aspect_ratio``, or of each ``fixed_ratio`` alone. They are clipped to
    the image, and do not need ``min_size``.

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016, section 2.2).
    """

    arity = Arity(bottoms=(2, 2))
    computes = False
    within_batch = no_collectives = True
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.prior_box_param
        self.priors = _priors(param)
        self.clip = param.clip
        self.variance = list(param.variance) * (1 if len(param.variance) == 4 else 4) or [VARIANCE] * 4
        self._made: tuple[tuple[Shape, Shape], Tensor] | None = None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.prior_box_param
        if any(len(shape) != 4 for shape in bottoms):
            raise spec.error(
                f"needs a feature map and images of 4 axes (N, channels, rows, columns): {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        _check(spec, param)
        boxes = len(_priors(param).sizes)
        return LayerShapes(((1, 2, bottoms[0][2] * bottoms[0][3] * boxes * 4),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return ""  # all samples have the same boxes

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        param = layer.prior_box_param
        return (f"{len(_priors(param).sizes)} boxes at each place",)

    def forward(self, *bottoms: Tensor) -> Tensor:
        # Only rows and columns are read: in a trace with an open batch a number of samples would become a constant.
        sizes = tuple(bottoms[0].shape[2:]), tuple(bottoms[1].shape[2:])
        if self._made is None or self._made[0] != sizes or self._made[1].device != bottoms[0].device:
            self._made = sizes, self._make(*sizes).to(bottoms[0].device)
        return self._made[1].to(bottoms[0].dtype)

    def _make(self, feature_map: Shape, images: Shape) -> Tensor:
        param, places = self.spec.param.prior_box_param, (feature_map[0], feature_map[1])
        height = param.img_size or param.img_h or images[0]
        width = param.img_size or param.img_w or images[1]
        down = param.step or param.step_h or height / places[0]
        right = param.step or param.step_w or width / places[1]
        sizes, shifts, dense = self.priors
        made = prior_boxes(places, (height, width), (down, right), param.offset, sizes, shifts if dense else None)
        boxes = torch.from_numpy(made)
        boxes.view(-1, len(sizes), 4)[:, : None if self.clip else dense].clamp_(0, 1)
        variances = torch.tensor(self.variance).expand_as(boxes)
        return torch.stack((boxes, variances)).view(1, 2, -1)


def _ratios(param: pb.PriorBoxParameter) -> tuple[float, ...]:
    return aspect_ratios(param.aspect_ratio, param.flip)


class _Priors(NamedTuple):
    """The boxes of a place: sizes and shifts of centres, both (number, 2). The first ``dense`` are FaceBoxes'."""

    sizes: NDArray[np.float32]
    shifts: NDArray[np.float32]
    dense: int


def _priors(param: pb.PriorBoxParameter) -> _Priors:
    ratios = _ratios(param)
    fixed, densities, fixed_ratios = (_given(param, name) for name in ("fixed_size", "density", "fixed_ratio"))
    dense = dense_priors(fixed, [int(density) for density in densities], fixed_ratios, ratios)
    plain = prior_sizes(param.min_size, param.max_size, ratios)
    return _Priors(
        np.concatenate((dense[:, :2], plain)), np.concatenate((dense[:, 2:], np.zeros_like(plain))), len(dense)
    )


def _given(param: pb.PriorBoxParameter, name: str) -> Sequence[float]:
    """Return the values of a field of FaceBoxes', by either of its names."""
    return next((values for each in (name, *SPELLINGS[name]) if (values := getattr(param, each))), ())


def _check_dense(spec: LayerSpec, param: pb.PriorBoxParameter) -> None:
    for name, others in SPELLINGS.items():
        written = [each for each in (name, *others) if getattr(param, each)]
        if len(written) > 1:
            raise spec.error(f"give {name}, or {written[1]}, its other form; not both", FIELD, written[1])
        for index, value in enumerate(_given(param, name)):
            least = 0 if name == "fixed_ratio" else 1
            if not value > 0 or value < least:
                least_words = f"at least {least}" if least else "above 0"
                raise spec.error(f"{written[0]} {value:g} must be {least_words}", FIELD, written[0], index)
    fixed, densities = _given(param, "fixed_size"), _given(param, "density")
    if densities and len(densities) != len(fixed):
        raise spec.error(
            f"give a density for each fixed_size, or none: they are {len(densities)} and {len(fixed)}", FIELD
        )
    if _given(param, "fixed_ratio") and not fixed:
        raise spec.error("fixed_ratio goes with fixed_size, which is missing", FIELD)


def _check(spec: LayerSpec, param: pb.PriorBoxParameter) -> None:
    _check_dense(spec, param)
    if not param.min_size and not _given(param, "fixed_size"):
        raise spec.error("give at least one min_size, in pixels", FIELD)
    for name in ("min_size", "max_size", "aspect_ratio", "variance"):
        for index, value in enumerate(getattr(param, name)):
            least = 1 if name == "min_size" else 0
            if not value > 0 or value < least:
                raise spec.error(f"{name} {value:g} must be {'at least 1' if least else 'above 0'}", FIELD, name, index)
    if param.max_size and len(param.max_size) != len(param.min_size):
        raise spec.error(
            f"give a max_size for each min_size, or none: they are {len(param.max_size)} and {len(param.min_size)}",
            FIELD,
            "max_size",
        )
    for index, (small, large) in enumerate(zip(param.min_size, param.max_size, strict=False)):
        if large <= small:
            raise spec.error(f"max_size {large:g} must be above its min_size {small:g}", FIELD, "max_size", index)
    if len(param.variance) not in (0, 1, 4):
        raise spec.error(
            f"give variance four times, or once for all, not {len(param.variance)} times", FIELD, "variance"
        )
    _check_sizes(spec, param)


def _check_sizes(spec: LayerSpec, param: pb.PriorBoxParameter) -> None:
    for both, one, other in (("img_size", "img_h", "img_w"), ("step", "step_h", "step_w")):
        if param.HasField(both) and (param.HasField(one) or param.HasField(other)):
            raise spec.error(f"give {both}, or {one} and {other}, not both", FIELD, both)
        if param.HasField(one) != param.HasField(other):
            raise spec.error(f"give {one} and {other}, or neither", FIELD, one if param.HasField(one) else other)
        for name in (both, one, other):
            if param.HasField(name) and not getattr(param, name) > 0:
                raise spec.error(f"{name} must be above 0", FIELD, name)
