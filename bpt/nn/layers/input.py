"""Input: blobs that the caller sets."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, Family, Layer


@LAYERS.register("Input")
class Input(Layer):
    """Tops of the given shapes, one ``shape`` a top or one for all; the caller sets their data."""

    arity = Arity(bottoms=(0, 0), tops=(1, None))
    family = Family.DATA

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shapes = [tuple(shape.dim) for shape in spec.param.input_param.shape]
        tops = len(spec.tops)
        if len(shapes) not in (1, tops):
            raise spec.error(f"needs one input_param shape, or one a top ({tops}), not {len(shapes)}", "input_param")
        return LayerShapes(tuple(shapes if len(shapes) == tops else shapes * tops))

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 0
