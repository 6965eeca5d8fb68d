"""The classifying layer of a net, and its predictions."""

from __future__ import annotations

import math
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
    """The predictions of a classifying layer in one forward pass, including those with ignored labels.

    Attributes:
        scores: (outer, classes), or (outer, classes, inner), without a gradient.
        labels: class indices, int64, (outer) or (outer, inner).
        counts: mask in the shape of the labels: False for ignored ones; ``None``: all count.
    """

    scores: Tensor
    labels: Tensor
    counts: Tensor | None

    def right(self) -> Tensor:
        """Return which predictions are correct: bool, in the shape of the labels.

        As in the Accuracy layer, the label's score must be better than all others. So a net with equal scores, or with
        NaN, is never right.
        """
        labels = self.labels if self.counts is None else self.labels * self.counts  # an ignored one may be no class
        right = places_of(self.scores, labels) == 0
        return right if self.counts is None else right & self.counts

    def counted(self) -> tuple[Tensor, Tensor]:
        """Return scores (labels, classes) and labels (labels,) without the ignored ones."""
        rows = self.scores.movedim(1, -1).reshape(-1, self.scores.shape[1])
        labels = self.labels.flatten()
        if self.counts is None:
            return rows, labels
        kept = self.counts.flatten()
        return rows[kept], labels[kept]


def predicted_classes(rows: Tensor, labels: Tensor, places: Tensor) -> Tensor:
    """Return (labels,) the predicted class of each label.

    If the Accuracy layer would count a prediction as correct, its class is the label's, else the best of the other
    classes. So ties count against the net.

    Args:
        rows: (labels, classes) scores.
        labels: (labels,) classes.
        places: (labels,) the number of other classes with at least as good a score, as ``places_of`` returns it.
    """
    best_other = rows.scatter(1, labels[:, None], -math.inf).argmax(1)
    return torch.where(places == 0, labels, best_other)


@dataclass(frozen=True)
class ClassifierLayer:
    """A layer whose bottoms are scores and labels.

    Attributes:
        axis: axis of the classes in the scores.
        ignore_label: positions with this label do not count.
        normalised: whether the scores are probabilities already, because they come from a Softmax layer.
    """

    layer: Layer
    axis: int
    ignore_label: int | None
    normalised: bool

    @torch.no_grad()
    def predictions(self, bottoms: Sequence[Tensor]) -> Predictions:
        """Return the predictions in the layer's ``bottoms``; the layer itself refuses labels that are not classes."""
        scores = by_class(bottoms[0].detach(), self.axis)
        labels = bottoms[1].detach().long().reshape(scores.shape[:1] + scores.shape[2:])
        return Predictions(scores, labels, None if self.ignore_label is None else labels != self.ignore_label)


def classifying_node(graph: LayerGraph) -> LayerNode | None:
    """Return the layer that compares class scores with labels, or ``None`` if there is none.

    Of several losses it is the one with the largest ``loss_weight``, and of equal ones the last: GoogLeNet's auxiliary
    losses (0.3) come before the main loss (1), and deployment keeps only the last classifier. Without a SoftmaxWithLoss
    it is the last Accuracy layer, for any ``top_k``. Losses come first, because a training net often has no Accuracy.
    """
    found = [node for node in graph.nodes if issubclass(LAYERS[node.type], Classifying)]
    losses = [node for node in found if node.layer_type.is_loss]
    if losses:
        return max(losses, key=lambda node: (graph.edges[node.tops[0]].loss_weight, node.index))
    return found[-1] if found else None


def find_classifier(net: Net) -> ClassifierLayer | None:
    """Return the ``classifying_node`` of ``net``, or ``None`` if there is none or it runs on another rank."""
    node = classifying_node(net.graph)
    if node is None or not net.part.runs(node.index):
        return None
    layer = net.layer(node)
    assert isinstance(layer, Classifying), node
    return ClassifierLayer(layer, layer.axis, layer.ignore_label, _from_softmax(net.graph, node))


def _from_softmax(graph: LayerGraph, node: LayerNode) -> bool:
    """Return whether ``node`` reads scores of a Softmax layer; a loss computes the softmax itself."""
    if node.layer_type.is_loss:
        return False
    source = graph.nodes[graph.edges[node.bottoms[0]].producer]
    while source.layer_type.is_view:
        source = graph.nodes[graph.edges[source.bottoms[0]].producer]
    return issubclass(LAYERS[source.type], Softmax)
