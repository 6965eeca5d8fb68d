"""Confusion counts of a test: which classes are taken for which, and the rank of the label among the scores."""

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
from bpt.train.metrics.classifier_layer import Predictions
from bpt.train.metrics.classifier_watch import ClassifierWatch

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """Counts of labels, without ignored ones.

    Attributes:
        matrix: (classes, classes): labels of the row's class that the net took for the column's.
        places: (classes,): labels that so many other classes had a score at least as good as theirs. A label whose
            score is not a number is at no place.
    """

    matrix: Counts
    places: Counts

    @property
    def labels(self) -> Counts:
        """The number of labels of each class, (classes,)."""
        counts: Counts = self.matrix.sum(1)
        return counts

    def top(self, k: int) -> float:
        """Return the share of labels among the ``k`` best scores, as the Accuracy layer does; NaN without labels."""
        counted = int(self.labels.sum())
        return int(self.places[:k].sum()) / counted if counted else math.nan

    def of_classes(self) -> npt.NDArray[np.float64]:
        """Return the recall of each class, (classes,): the correct share of its labels; NaN without labels."""
        labels = self.labels
        right = self.matrix.diagonal()
        shares: npt.NDArray[np.float64] = np.full(len(labels), np.nan)
        np.divide(right, labels, out=shares, where=labels > 0)
        return shares


class ConfusionWatch(ClassifierWatch):
    """A ClassifierWatch that counts over all forward passes of a net while it is entered.

    A label is taken for its own class if the Accuracy layer would call it right, else for the best of the others. So
    ties count against the net, and the matrix's diagonal is what Accuracy counts.
    """

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        self._matrix: Tensor | None = None
        self._places: Tensor | None = None

    def result(self, samples: Communicator) -> Confusion | None:
        """Return the counts of all ranks that share the batches.

        A collective call. ``None``: the net does not classify.
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
        best_other = rows.scatter(1, labels[:, None], -math.inf).argmax(1)
        taken_for = torch.where(places == 0, labels, best_other)
        self._matrix += torch.bincount(labels * classes + taken_for, minlength=classes**2).view(classes, classes)
