"""Accuracy and AUC of a whole test, gathered while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.metrics.auc import macro_auc
from bpt.train.metrics.classifier_layer import Predictions
from bpt.train.metrics.classifier_watch import ClassifierWatch

LIMIT = 2**30  # bytes; ImageNet's 50,000 images of 1000 classes take a fifth


@dataclass(frozen=True)
class ClassScores:
    """The classification scores of a net in a test.

    Attributes:
        accuracy: top-1 accuracy over all labels that are not ignored; NaN without labels.
        auc: the AUC as in ``macro_auc``; NaN if it is unknown.
        counted: number of labels.
        note: the reason why there is no AUC, as a clause; "" if there is one.
    """

    accuracy: float = math.nan
    auc: float = math.nan
    counted: int = 0
    note: str = ""


class ScoreWatch(ClassifierWatch):
    """Gathers the scores and labels of all forward passes of a net in its ``with`` block.

    ::

        with ScoreWatch(net) as watch:
            run_test(operator, iterations)
        print(watch.result().auc)

    Scores are the softmax of the classifying layer's bottom. Each position of a larger output, as in segmentation,
    counts separately. Passes accumulate over several ``with`` blocks, until ``clear``.

    Args:
        net: the test net.
        limit: bytes of host memory for the scores of a test. Beyond it the scores are dropped: then there is an
            accuracy, but no AUC. The computation of the AUC needs the same amount of memory once more.
    """

    def __init__(self, net: Net, limit: int = LIMIT) -> None:
        super().__init__(net)
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Drop all scores and labels."""
        self._scores: list[npt.NDArray[np.float32]] = []
        self._labels: list[npt.NDArray[np.int64]] = []
        self._bytes = 0  # bytes of all scores, including dropped ones
        self._correct = 0
        self._counted = 0

    def result(self, samples: Communicator | None = None) -> ClassScores:
        """Return the scores of all passes since the start, or since ``clear``.

        Args:
            samples: the ranks that share the batches; each gets the scores of all, in a collective call. By default
                this rank is alone.
        """
        if self._classifier is None:
            return ClassScores(note="the net has no SoftmaxWithLoss or Accuracy layer on this rank")
        samples = samples or SerialCommunicator()
        correct, counted, size = np.sum(samples.allgather((self._correct, self._counted, self._bytes)), 0).tolist()
        if not counted:
            return ClassScores(note="there was no label to count")
        accuracy = correct / counted
        if size > self._limit:
            note = f"the scores take more than {self._limit / 2**20:.4g} MiB"
            return ClassScores(accuracy, counted=counted, note=note)
        ranks = samples.allgather((self._scores, self._labels))
        scores = np.concatenate([rows for own, _ in ranks for rows in own])
        auc = macro_auc(scores, np.concatenate([labels for _, own in ranks for labels in own]))
        note = "no class has samples and others, or a score is not a number" if math.isnan(auc) else ""
        return ClassScores(accuracy, auc, counted, note)

    def _take(self, seen: Predictions) -> None:
        self._correct += int(seen.right().sum())
        self._counted += seen.labels.numel() if seen.counts is None else int(seen.counts.sum())
        self._bytes += seen.scores.numel() * np.dtype(np.float32).itemsize
        if self._bytes > self._limit:
            self._scores.clear()
            self._labels.clear()
        else:
            assert self._classifier is not None
            self._keep(seen, self._classifier.normalised)

    def _keep(self, seen: Predictions, normalised: bool) -> None:
        scores, labels = seen.counted()
        rows = scores.float() if normalised else scores.float().softmax(1)
        self._scores.append(rows.cpu().numpy().copy())
        self._labels.append(labels.cpu().numpy().copy())
