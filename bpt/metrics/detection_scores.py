"""The mean average precision of a detection net, of the rows that its DetectionEvaluate layer makes batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bpt.detection.average_precision import average_precision
from bpt.detection.evaluation import COLUMNS
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.layers import LAYERS


@dataclass(frozen=True)
class Precisions:
    """Average precisions by label, and their mean; of a label that nothing was found of, 0 (SSD: ``TestDetection``)."""

    by_label: dict[int, float]

    @property
    def mean(self) -> float:
        return sum(self.by_label.values()) / max(1, len(self.by_label))


def precisions_of(rows: Tensor, version: str) -> Precisions:
    """Of DetectionEvaluate's rows (…, 5) of any batches, in any order; of equal scores those of the first image come
    first.

    Args:
        rows: their images have the numbers that they have among all.
        version: one of ``AP_VERSIONS``.
    """
    table = rows.reshape(-1, COLUMNS).double().numpy()
    counts, found = table[table[:, 0] < 0], table[table[:, 0] >= 0]
    found = found[found[:, 0].argsort(kind="stable")]
    found = found[found[:, 3] + found[:, 4] > 0]  # what has found a difficult object is neither right nor wrong
    return Precisions(
        {
            int(label): average_precision(
                found[found[:, 1] == label, 2:], int(counts[counts[:, 1] == label, 2].sum()), version
            )
            for label in np.unique(counts[:, 1]).tolist()
        }
    )


def is_listed(graph: LayerGraph, edge: Edge) -> bool:
    """Whether a blob has as many rows as the data say, each of which names its sample."""
    node = graph.nodes[edge.producer]
    return node.tops.index(edge.index) in LAYERS[node.type].listed


def is_evaluated(graph: LayerGraph, edge: Edge) -> bool:
    """Whether a blob tells which detections are right."""
    return graph.nodes[edge.producer].type == "DetectionEvaluate"
