"""The structure of a net under pycaffe's names: its layers, their bottoms and their tops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bpt.caffe.core.blob import Blob
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.layers.python import Python
from bpt.nn.net import Net as CoreNet


class NetLayer:
    """A layer of a net: its ``type``, and its parameters as ``blobs``."""

    def __init__(self, node: LayerNode, blobs: Sequence[Blob]) -> None:
        self._node = node
        self.blobs = list(blobs)

    @property
    def type(self) -> str:
        return self._node.type

    def __repr__(self) -> str:
        return f'<layer "{self._node.name}" of type {self.type}>'


class NetStructure:
    """Names and numbers of layers and blobs, in the order of execution; the Split layers are among them."""

    params: dict[str, list[Blob]]

    @property
    def _core(self) -> CoreNet:
        raise NotImplementedError

    @property
    def _graph(self) -> LayerGraph:
        return self._core.graph

    @property
    def layers(self) -> list[object]:
        """A NetLayer for each layer or, for a Python layer, the object of the user's class.

        That object has the attributes of a NetLayer, too, except if it is a ``torch.nn.Module``.
        """
        found: list[object] = []
        for node in self._graph.nodes:
            layer = self._core.layer(node)
            shown = NetLayer(node, self.params[node.name] if node.params else ())
            found.append(layer.own if isinstance(layer, Python) else shown)
        return found

    @property
    def layer_dict(self) -> dict[str, object]:
        """``layers`` by name."""
        return dict(zip(self._layer_names, self.layers, strict=True))

    @property
    def inputs(self) -> list[str]:
        """Names of the blobs that the caller sets, in order."""
        return list(self._graph.inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads, sorted."""
        return [edge.blob for edge in self._graph.outputs]

    @property
    def top_names(self) -> dict[str, list[str]]:
        """The blobs that each layer makes, by the layer's name."""
        return {node.name: [self._blob_of(edge) for edge in node.tops] for node in self._graph.nodes}

    @property
    def bottom_names(self) -> dict[str, list[str]]:
        """The blobs that each layer reads, by the layer's name."""
        return {node.name: [self._blob_of(edge) for edge in node.bottoms] for node in self._graph.nodes}

    @property
    def blob_loss_weights(self) -> dict[str, float]:
        """The weight of each blob in the loss; 0 for most."""
        return {name: edge.loss_weight for name, edge in self._graph.blobs.items()}

    @property
    def _layer_names(self) -> list[str]:
        return [node.name for node in self._graph.nodes]

    @property
    def _blob_names(self) -> list[str]:
        return list(self._graph.blobs)

    @property
    def _blob_loss_weights(self) -> list[float]:
        return list(self.blob_loss_weights.values())

    @property
    def _inputs(self) -> list[int]:
        return self._numbers(self.inputs)

    @property
    def _outputs(self) -> list[int]:
        return self._numbers(self.outputs)

    def _top_ids(self, layer: int) -> list[int]:
        return self._numbers(self._blob_of(edge) for edge in self._graph.nodes[layer].tops)

    def _bottom_ids(self, layer: int) -> list[int]:
        return self._numbers(self._blob_of(edge) for edge in self._graph.nodes[layer].bottoms)

    def _blob_of(self, edge: int) -> str:
        return self._graph.edges[edge].blob

    def _numbers(self, names: Iterable[str]) -> list[int]:
        places = {name: place for place, name in enumerate(self._graph.blobs)}
        return [places[name] for name in names]
