"""The classifying layer of a net, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import Layer
from bpt.nn.layers.labels import Classifying, by_class, places_of
from bpt.nn.layers.softmax import Softmax
from bpt.nn.net import Net


@dataclass(frozen=True)
class Predictions:
    """The predictions of a classifying layer in one forward pass, with ignored labels.

    Attributes:
        scores: (outer, classes), or (outer, classes, inner), without a gradient.
        labels: class indices, int64, (outer) or (outer, inner).
        counts: bool, in the shape of the labels: which of them are not ignored; ``None``: all.
    """

    scores: Tensor
    labels: Tensor
    counts: Tensor | None

    def right(self) -> Tensor:
        """Return which predictions are correct: bool, in the shape of the labels.

        As the Accuracy layer has it: the label's score must be better than all others, so a net that tells nothing
        apart, or gives NaN, is never right.
        """
        labels = self.labels if self.counts is None else self.labels * self.counts  # an ignored one need not be a class
        right = places_of(self.scores, labels) == 0
        return right if self.counts is None else right & self.counts

    def counted(self) -> tuple[Tensor, Tensor]:
        """Return scores (labels, classes) and labels (labels,), without those that are ignored."""
        rows = self.scores.movedim(1, -1).reshape(-1, self.scores.shape[1])
        labels = self.labels.flatten()
        if self.counts is None:
            return rows, labels
        kept = self.counts.flatten()
        return rows[kept], labels[kept]


@dataclass(frozen=True)
class ClassifierLayer:
    """A layer whose bottoms are scores and labels.

    Attributes:
        axis: of the scores, along which the classes stand.
        ignore_label: positions with this label do not count.
        normalised: whether its scores are probabilities already: they come from a Softmax layer.
    """

    layer: Layer
    axis: int
    ignore_label: int | None
    normalised: bool

    @torch.no_grad()
    def predictions(self, bottoms: Sequence[Tensor]) -> Predictions:
        """Return the predictions of ``bottoms`` of its forward; the layer itself refuses labels that are no classes."""
        scores = by_class(bottoms[0].detach(), self.axis)
        labels = bottoms[1].detach().long().reshape(scores.shape[:1] + scores.shape[2:])
        return Predictions(scores, labels, None if self.ignore_label is None else labels != self.ignore_label)


def classifying_node(graph: LayerGraph) -> LayerNode | None:
    """Return the layer that compares scores of classes with labels; ``None`` if there is none.

    Of several losses it is that with the greatest ``loss_weight``, and of equal ones the last: GoogLeNet's auxiliary
    losses (0.3) stand before the one that counts (1), and only the last classifier remains in deployment. Without a
    SoftmaxWithLoss it is the last Accuracy layer, whose ``top_k`` does not matter here. Losses come first, since a
    training net often has no Accuracy.
    """
    found = [node for node in graph.nodes if issubclass(LAYERS[node.type], Classifying)]
    losses = [node for node in found if node.layer_type.is_loss]
    if losses:
        return max(losses, key=lambda node: (graph.edges[node.tops[0]].loss_weight, node.index))
    return found[-1] if found else None


def find_classifier(net: Net) -> ClassifierLayer | None:
    """Return the ``classifying_node`` of ``net``; ``None`` if there is none, or if it runs on another rank."""
    node = classifying_node(net.graph)
    if node is None or not net.part.runs(node.index):
        return None
    layer = net.layer(node)
    assert isinstance(layer, Classifying), node
    return ClassifierLayer(layer, layer.axis, layer.ignore_label, _from_softmax(net.graph, node))


def _from_softmax(graph: LayerGraph, node: LayerNode) -> bool:
    """Return whether a Softmax layer has made the scores that ``node`` reads.

    A loss makes probabilities of them itself.
    """
    if node.layer_type.is_loss:
        return False
    source = graph.nodes[graph.edges[node.bottoms[0]].producer]
    while source.layer_type.is_view:
        source = graph.nodes[graph.edges[source.bottoms[0]].producer]
    return issubclass(LAYERS[source.type], Softmax)
