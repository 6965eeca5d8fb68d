"""Optional reports of ``bpt test``: top-k accuracy, accuracy of each class, AUC, and the confusion matrix."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from bpt.apps.pictures.class_names import ClassNames, class_names, names_of_net
from bpt.base.atomic import check_place, write_text
from bpt.base.errors import UserError
from bpt.base.log import columns, log_results, number
from bpt.nn.net import Net
from bpt.nn.net_graph import is_evaluated
from bpt.system.comm.base import Communicator
from bpt.train.metrics import Confusion, ConfusionWatch, ScoreWatch
from bpt.train.metrics.classifier_layer import classifying_node, find_classifier
from bpt.train.outer.report.style import MEDIUM, SMALL, check_matplotlib, new_figure, save

PICTURES = (".png", ".svg")
NUMBERED = 15  # largest number of classes for which a picture shows the counts
NAMED = 60  # largest number of classes for which a picture names each class
INCHES_A_CLASS, LEAST, MOST = 0.32, 3.4, 9.0  # inches of a class, and smallest and largest side of a picture


def check_confusion_path(path: str) -> None:
    """Raise a UserError if no confusion matrix can be written to ``path``, before a long test."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", *PICTURES):
        raise UserError(f'"{path}": a confusion matrix is written as .csv, {" or ".join(PICTURES)}')
    check_place(path)
    if suffix in PICTURES:
        check_matplotlib()


def write_confusion(path: str | os.PathLike[str], matrix: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    """Write ``matrix`` as a CSV file or as a PNG or SVG picture, by the suffix of ``path``.

    Args:
        path: the file to write.
        matrix: counts of (label, predicted class), (classes, classes).
        names: the names of the classes.

    Raises:
        WriteError: the file could not be written.
    """
    if Path(path).suffix.lower() in PICTURES:
        _draw(path, matrix, names)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["label", *names])
    table.writerows([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
    write_text(path, text.getvalue())


def _draw(path: str | os.PathLike[str], matrix: npt.NDArray[np.int64], names: Sequence[str]) -> None:
    """Draw the matrix; colours are shares of a row, so that rare classes are as visible as frequent ones."""
    classes = len(names)
    figure, (axes,) = new_figure()
    side = min(max(INCHES_A_CLASS * classes, LEAST), MOST)
    figure.set_size_inches(side + 1.4, side + 0.6)
    labels = matrix.sum(1, keepdims=True)
    shares = np.divide(matrix, labels, out=np.zeros(matrix.shape), where=labels > 0)
    image = axes.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.set_label("% of the label's samples", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("label")
    if classes <= NAMED:
        axes.set_xticks(range(classes), names, rotation=90 if max(map(len, names)) > 2 else 0, parse_math=False)
        axes.set_yticks(range(classes), names, parse_math=False)
    if classes <= NUMBERED:
        for (row, column), number in np.ndenumerate(matrix):
            if number:
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(number), ha="center", va="center", color=colour, fontsize=SMALL)
    right, counted = int(matrix.diagonal().sum()), int(matrix.sum())
    axes.set_title(f"{right} of {counted} right" + (f", {100 * right / counted:.1f} %" if counted else ""))
    axes.title.set_fontsize(MEDIUM)
    save(figure, path)


LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Metrics:
    """The reports that the user asks for.

    Attributes:
        top_k: report for each of these K the share of samples whose label is among the K best scores.
        per_class: report the accuracy of each class; the average precision if the net detects objects.
        confusion: the file for the confusion matrix; "": none. The caller checks it by ``check_confusion_path``.
        auc: report the macro AUC.
        labels: the file of the class names; see names_of_net. A class without a name is its number.
        ap_version: how average precisions are computed; one of ``AP_VERSIONS``.
    """

    top_k: tuple[int, ...] = ()
    per_class: bool = False
    confusion: str = ""
    auc: bool = False
    labels: str = ""
    ap_version: str = "Integral"

    @property
    def counts(self) -> bool:
        """Whether a report needs the confusion matrix."""
        return bool(self.top_k or self.per_class or self.confusion)

    @property
    def names_classes(self) -> bool:
        """Whether a report shows classes by their names."""
        return bool(self.per_class or self.confusion)


class MetricsReport:
    """Watches a net inside its context, and logs the ``metrics`` afterwards.

    Args:
        net: the test net.
        metrics: the reports.
        model: the net's file, for messages.

    Raises:
        UserError: the net does not classify, or the number of its classes does not fit ``top_k`` or the names.
        FileError: the file of names cannot be read.
    """

    def __init__(self, net: Net, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        evaluating = [net.graph.nodes[edge.producer] for edge in net.graph.outputs if is_evaluated(net.graph, edge)]
        self._detected = ClassNames()
        if evaluating and metrics.per_class and metrics.labels:
            most = max(node.spec.param.detection_evaluate_param.num_classes for node in evaluating)
            self._detected = class_names(metrics.labels, most)
        if evaluating and metrics.per_class:  # the test itself reports the precision of each class
            metrics = replace(metrics, per_class=False)
            self._metrics = metrics
        self._confusions = ConfusionWatch(net) if metrics.counts else None
        self._scores = ScoreWatch(net) if metrics.auc else None
        self._watching = ExitStack()
        self._names: list[str] = []
        if self._confusions is None and self._scores is None:
            return
        node, classifier = classifying_node(net.graph), find_classifier(net)
        if node is None or classifier is None:
            raise UserError(
                f"{model}: no layer of the TEST phase compares scores of classes with labels, so there is no top-k, "
                "confusion or AUC; add a SoftmaxWithLoss or an Accuracy layer"
            )
        classes = net.graph.edges[node.bottoms[0]].shape[classifier.axis]
        if metrics.top_k and max(metrics.top_k) > classes:
            raise UserError(f'--top_k {max(metrics.top_k)}: layer "{node.name}" of {model} has {classes} classes')
        names = names_of_net(metrics.labels, model, classes) if metrics.names_classes else ClassNames()
        self._names = list(map(names.short, range(classes)))

    def __enter__(self) -> MetricsReport:
        for watch in (self._confusions, self._scores):
            if watch:
                self._watching.enter_context(watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()

    def detected_name(self, label: int) -> str:
        """Return what follows the precision of a detected class: its name, if ``labels`` gives one."""
        return f" ({self._detected[label]})" if self._detected[label] else ""

    def finish(self, samples: Communicator) -> None:
        """Log the reports and write the file; a collective call of ``samples``, the ranks that divide the batches.

        Raises:
            WriteError: the confusion matrix could not be written.
        """
        found = self._confusions.result(samples) if self._confusions else None
        if found:
            for k in self._metrics.top_k:
                log_results(LOG, [f"Top-{k} accuracy = {number(found.top(k))}"])
            if self._metrics.per_class:
                rows = columns(list(_rows(found, self._names)), left=1)
                log_results(LOG, [f"    {line}" for line in rows])
        if self._scores:
            scores = self._scores.result(samples)
            log_results(LOG, [f"Macro AUC = {number(scores.auc)}" + (f" ({scores.note})" if scores.note else "")])
        if found and self._metrics.confusion and samples.rank == 0:  # last, so that an error loses no other report
            write_confusion(self._metrics.confusion, found.matrix, self._names)
            LOG.info("Confusion matrix written to %s", self._metrics.confusion)


def _rows(found: Confusion, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a table: the head, each class, and the mean of the classes that have labels."""
    yield "class", "labels", "right", "accuracy"
    shares = found.of_classes().tolist()
    for name, labels, right, share in zip(names, found.labels.tolist(), found.matrix.diagonal(), shares, strict=True):
        yield name, str(labels), str(right), _shown(share)
    known = [share for share in shares if not math.isnan(share)]
    mean = math.fsum(known) / len(known) if known else math.nan
    yield "mean of classes", str(found.labels.sum()), str(found.matrix.diagonal().sum()), _shown(mean)


def _shown(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.4f}"
