"""Confusion counts of a test: the predicted class for each label, and the rank of the label among the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bpt.nn.layers.labels import places_of
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.train.metrics.classifier_layer import Predictions, predicted_classes
from bpt.train.metrics.classifier_watch import ClassifierWatch

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """Counts of labels, without ignored ones.

    Attributes:
        matrix: (classes, classes) number of labels of the row's class that were predicted as the column's class.
        places: (classes,) number of labels by how many other classes had at least as good a score. Labels with a score
            of NaN are not in it.
    """

    matrix: Counts
    places: Counts

    @property
    def labels(self) -> Counts:
        """The number of labels of each class, (classes,)."""
        counts: Counts = self.matrix.sum(1)
        return counts

    def top(self, k: int) -> float:
        """Return the fraction of labels among the ``k`` best scores, as the Accuracy layer does; NaN without labels."""
        counted = int(self.labels.sum())
        return int(self.places[:k].sum()) / counted if counted else math.nan

    def of_classes(self) -> npt.NDArray[np.float64]:
        """Return (classes,) the recall of each class, its fraction of correct labels; NaN without labels."""
        labels = self.labels
        right = self.matrix.diagonal()
        shares: npt.NDArray[np.float64] = np.full(len(labels), np.nan)
        np.divide(right, labels, out=shares, where=labels > 0)
        return shares


class ConfusionWatch(ClassifierWatch):
    """A ClassifierWatch that counts over all forward passes of a net in its ``with`` block.

    Predicted classes are those of ``predicted_classes``, so the matrix's diagonal has the counts of the Accuracy layer.
    """

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        self._matrix: Tensor | None = None
        self._places: Tensor | None = None

    def result(self, samples: Communicator) -> Confusion | None:
        """Return the counts of all ranks that share the batches, or ``None`` if the net does not classify.

        This is a collective call.
        """
        matrix, places = self._matrix, self._places
        classes = max(samples.allgather(0 if places is None else len(places)))
        if not classes:
            return None
        both = np.zeros((classes + 1, classes), np.int64)
        if matrix is not None and places is not None:
            both[:-1], both[-1] = matrix.cpu().numpy(), places.cpu().numpy()
        samples.Allreduce(both)
        return Confusion(both[:-1], both[-1])

    def _take(self, seen: Predictions) -> None:
        classes = seen.scores.shape[1]
        if self._matrix is None or self._places is None:
            self._matrix = torch.zeros(classes, classes, dtype=torch.int64, device=seen.scores.device)
            self._places = torch.zeros(classes, dtype=torch.int64, device=seen.scores.device)
        rows, labels = seen.counted()
        places = places_of(rows, labels)
        self._places += torch.bincount(places, minlength=classes + 1)[:classes]
        predicted = predicted_classes(rows, labels, places)
        self._matrix += torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
