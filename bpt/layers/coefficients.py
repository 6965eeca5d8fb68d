"""Scale's factors and Bias's summands: a blob of some of the bottom's axes, spread over the others."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.spec import LayerSpec, Shape
from bpt.layers.axes import canonical_axis


def coefficient_shape(spec: LayerSpec, bottoms: Sequence[Shape], field: str) -> Shape:
    """Shape of the coefficients: the second bottom's, or that of ``num_axes`` axes of the first from ``axis`` on.

    Args:
        field: ``"scale_param"`` or ``"bias_param"``, which hold ``axis`` and ``num_axes`` (of which the
            latter goes without saying where there is a second bottom, and is ignored, as in Caffe).

    Raises:
        LayerError: they reach over the end of the first bottom, or its axes are of other sizes.
    """
    param = getattr(spec.param, field)
    bottom = bottoms[0]
    if len(bottoms) == 2:
        given = bottoms[1]
        axis = canonical_axis(spec, param.axis, bottom, field, "axis") if given else 0
        if bottom[axis : axis + len(given)] != given:
            raise spec.error(
                f'bottom "{spec.bottoms[1]}" of shape {given} does not fit bottom "{spec.bottoms[0]}" '
                f"of shape {bottom} from axis {axis} on",
                "bottom",
                1,
            )
        return given
    axis = canonical_axis(spec, param.axis, bottom, field, "axis")
    if param.num_axes < -1:
        raise spec.error(
            f"num_axes must be at least 0, or -1 for all from axis on; not {param.num_axes}", field, "num_axes"
        )
    end = len(bottom) if param.num_axes == -1 else axis + param.num_axes
    if end > len(bottom):
        raise spec.error(
            f"num_axes {param.num_axes} from axis {axis} on reaches over the end of a bottom of shape {bottom}",
            field,
            "num_axes",
        )
    return bottom[axis:end]


def coefficients_mix_samples(spec: LayerSpec, bottoms: Sequence[Shape], field: str, bias_term: bool = False) -> str:
    """The answer of ``Layer.mixes_samples``.

    Args:
        field: as above.
        bias_term: a blob of the coefficients' shape is learned, also where there is a second bottom.
    """
    shape = coefficient_shape(spec, bottoms, field)
    given = len(bottoms) == 2
    by_sample = bool(shape) and canonical_axis(spec, getattr(spec.param, field).axis, bottoms[0], field, "axis") == 0
    if given and not by_sample:
        return f'bottom "{spec.bottom_names[1]}" {shape} has no axis for the samples'
    if by_sample and (bias_term or not given):
        return "it learns coefficients for each sample (axis 0)"
    return ""


def spread(coefficients: Tensor, x: Tensor, axis: int) -> Tensor:
    """``coefficients`` with axes of 1 behind, so that against ``x`` they broadcast from ``axis`` on."""
    if not coefficients.dim():
        return coefficients
    behind = x.dim() - axis % x.dim() - coefficients.dim()
    return coefficients.reshape(*coefficients.shape, *(1,) * behind)
