"""Filter and BatchReindex: select samples."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.labels import row_indices


@LAYERS.register("Filter")
class Filter(Layer):
    """The samples (axis 0) of each bottom but the last for which the last, the selector, is not 0.

    Bottoms: blobs ``(N, …)``, and a selector of N numbers, which gets no diff. Tops: one for each blob. In the graph
    they have all N samples. A pass makes as many as are chosen, perhaps none, and the next layers get these. The Net
    asks those layers again whether they accept them (``behind_filters``).
    """

    arity = Arity(bottoms=(2, None), tops=(1, None))
    whole_batch_only = "the data decide how many samples pass"
    rows_by_data = True
    computes = False
    family = Family.JOIN
    bottoms_without_diff = (-1,)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        *blobs, selector = bottoms
        if len(spec.tops) != len(blobs):
            raise spec.error(
                f"takes as many tops as bottoms without the last, the selector; given {len(spec.tops)} tops and "
                f"{len(bottoms)} bottoms",
                "top",
            )
        if count(selector[1:]) != 1 or any(not blob or blob[:1] != selector[:1] for blob in blobs):
            raise spec.error(
                "needs bottoms with equally many samples (axis 0), and as the last a selector with one number for "
                f"each: {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return LayerShapes(tuple(blobs))

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        *blobs, selector = bottoms
        chosen = selector.detach().flatten().nonzero().squeeze(1)
        tops = tuple(blob.index_select(0, chosen) for blob in blobs)
        return tops[0] if len(tops) == 1 else tops


def behind_filters(graph: LayerGraph) -> frozenset[int]:
    """Return the indices of the layers whose bottoms may have other shapes than the graph says."""
    layers: set[int] = set()
    edges: set[int] = set()
    for node in graph.nodes:
        if not edges.isdisjoint(node.bottoms):
            layers.add(node.index)
        if node.index in layers or LAYERS[node.type].rows_by_data:
            edges.update(node.tops)
    return frozenset(layers)


def refit(layer: Layer, bottoms: Sequence[Tensor]) -> None:
    """Check that a layer after a Filter or a Proposal accepts these bottoms, as Caffe does before each forward.

    A program that is being exported is not checked: it has no shapes to check.

    Raises:
        LayerError: the bottoms fit neither each other nor the layer's text, or its parameters would get other shapes.
    """
    if is_compiling_or_tracing():
        return
    shapes = [tuple(bottom.shape) for bottom in bottoms]
    wanted = [param.shape for param in type(layer).infer(layer.spec, shapes).params]
    for index, shape in enumerate(wanted):
        if layer.blob(index).shape != shape:
            raise layer.spec.error(
                f"follows a Filter or a Proposal, and parameter {index} would get the shape {shape} for "
                f"{show_bottoms(layer.spec, shapes)}; it has {tuple(layer.blob(index).shape)}"
            )


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
