"""BatchReindex: selected samples, in any order, with repetition."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.labels import row_indices


@LAYERS.register("BatchReindex")
class BatchReindex(Layer):
    """``top[i] = bottom[index[i]]``, along axis 0.

    Bottoms: a blob ``(N, …)``; indices ``(M,)`` of its samples, which get no diff. A sample that is selected more than
    once gets the sum of the diffs. Top: ``(M, …)``.

    Raises:
        DataError: in ``forward``, for an index outside [0, N).
    """

    arity = Arity(bottoms=(2, 2))
    whole_batch_only = "it takes samples from anywhere in the batch"
    within_batch = True
    no_collectives = True
    computes = False
    family = Family.JOIN
    bottoms_without_diff = (1,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        blob, indices = bottoms
        if not blob or len(indices) != 1:
            raise spec.error(
                f"needs a blob with samples (axis 0) and indices of one axis: {show_bottoms(spec, bottoms)}", "bottom"
            )
        return LayerShapes(((*indices, *blob[1:]),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        blob, indices = bottoms
        samples = f'the samples of "{self.spec.bottom_names[0]}"'
        return blob.index_select(0, row_indices(self.spec, indices, 1, blob.shape[0], samples))
