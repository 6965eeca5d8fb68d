"""What ``bpt test`` reports when asked: top-k, the accuracy of each class, the confusion matrix, AUC."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bpt.comm.base import Communicator
from bpt.errors import FileError, UserError
from bpt.metrics import Confusion, ConfusionWatch, ScoreWatch
from bpt.metrics.classifier import classifying_node, find_classifier
from bpt.net import Net
from bpt.proto.files import UnreadableError, read_bytes
from bpt.report.columns import columns
from bpt.report.log import number
from bpt.score import confusion_file

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Metrics:
    """What is asked for.

    Attributes:
        top_k: numbers of best scores, among which the label may be.
        per_class: the accuracy of each class.
        confusion: a file for the confusion matrix, which ``check_path`` has found good.
        auc: the macro AUC.
        class_names: a text file with the name of a class on each line; else they are numbers.
    """

    top_k: tuple[int, ...] = ()
    per_class: bool = False
    confusion: str = ""
    auc: bool = False
    class_names: str = ""

    @property
    def counts(self) -> bool:
        """Whether something of it is counted from the confusions."""
        return bool(self.top_k or self.per_class or self.confusion)


class MetricsReport:
    """Watches a net while it is entered, and logs its ``metrics`` afterwards.

    Args:
        net: the test net.
        metrics: what is asked for.
        model: the net's file, for messages.

    Raises:
        UserError: the net does not classify, has fewer classes than ``top_k`` asks for, or not as many as there are
            names; a file of them cannot be read.
    """

    def __init__(self, net: Net, metrics: Metrics, model: str) -> None:
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
        self._names = _names(metrics.class_names, classes) if metrics.class_names else list(map(str, range(classes)))

    def __enter__(self) -> MetricsReport:
        for watch in (self._confusions, self._scores):
            if watch:
                self._watching.enter_context(watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()

    def finish(self, samples: Communicator) -> None:
        """Log what was asked for and write the file; collective over the ranks that share the batches.

        Raises:
            WriteError: the confusion matrix could not be written.
        """
        found = self._confusions.result(samples) if self._confusions else None
        if found:
            for k in self._metrics.top_k:
                LOG.info("Top-%d accuracy = %s", k, number(found.top(k)))
            if self._metrics.per_class:
                for line in columns(list(_rows(found, self._names)), left=1):
                    LOG.info("    %s", line)
        if self._scores:
            scores = self._scores.result(samples)
            LOG.info("Macro AUC = %s%s", number(scores.auc), f" ({scores.note})" if scores.note else "")
        if found and self._metrics.confusion and samples.rank == 0:  # last: whatever befalls the file, the rest is told
            confusion_file.write(self._metrics.confusion, found.matrix, self._names)
            LOG.info("Confusion matrix written to %s", self._metrics.confusion)


def _rows(found: Confusion, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A table: the head, each class, and the mean of the classes that have labels."""
    yield "class", "labels", "right", "accuracy"
    shares = found.of_classes().tolist()
    for name, labels, right, share in zip(names, found.labels.tolist(), found.matrix.diagonal(), shares, strict=True):
        yield name, str(labels), str(right), _shown(share)
    known = [share for share in shares if not math.isnan(share)]
    mean = math.fsum(known) / len(known) if known else math.nan
    yield "mean of classes", str(found.labels.sum()), str(found.matrix.diagonal().sum()), _shown(mean)


def _shown(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.4f}"


def _names(path: str, classes: int) -> list[str]:
    try:
        lines = read_bytes(Path(path)).decode().splitlines()
    except UnreadableError as error:
        raise FileError(path, str(error)) from None
    except UnicodeDecodeError:
        raise FileError(path, "is not a text file in UTF-8") from None
    names = [line.strip() for line in lines]
    while names and not names[-1]:
        names.pop()
    if len(names) != classes:
        raise FileError(path, f"has {len(names)} lines, and the net has {classes} classes: one name a line is wanted")
    return names
