"""Q: the accuracy on the samples that were just trained (BPT-CNN, Eq. 7 and 10)."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from torch import Tensor, nn

from bpt.nn.net import Net
from bpt.train.metrics.classifier_layer import Predictions, classifying_node, find_classifier


@dataclass(frozen=True)
class CorrectCount:
    """The number of correct predictions, and of all predictions.

    Attributes:
        classifies: whether the net classifies at all.
    """

    correct: int
    counted: int
    classifies: bool = True

    @property
    def ratio(self) -> float:
        """The accuracy Q: 1 if the net does not classify, so that weights count fully; 0 if nothing was counted."""
        if not self.classifies:
            return 1.0
        return self.correct / self.counted if self.counted else 0.0


class LocalAccuracy:
    """Counts correct predictions of a net in training, each with the weights of its own iteration.

    It observes the bottoms of the ``classifying_node`` in every forward pass on this rank, with any operator, and does
    not change results. Training nets rarely have an Accuracy layer, so this layer is mostly a loss. The counts stay on
    the device until ``take``. For other samples than those of training, use ScoreWatch.

    Args:
        net: the training net.

    Attributes:
        classifies: whether the net compares class scores with labels; if not, Q is 1.
    """

    def __init__(self, net: Net) -> None:
        self.classifies = classifying_node(net.graph) is not None
        self._correct: Tensor | None = None  # on the device
        self._counted: Tensor | int = 0
        self._classifier = find_classifier(net)
        self._hook = self._classifier.layer.register_forward_hook(self._look) if self._classifier else None

    def take(self) -> CorrectCount:
        """Return the counts since the last call; the host waits for the device."""
        correct, counted = self._correct, self._counted
        self._correct, self._counted = None, 0
        return CorrectCount(0 if correct is None else int(correct), int(counted), self.classifies)

    def close(self) -> None:
        """Stop counting."""
        if self._hook is not None:
            self._hook.remove()

    def __enter__(self) -> LocalAccuracy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, layer: nn.Module, bottoms: tuple[Tensor, ...], tops: object) -> None:
        assert self._classifier is not None
        self._add(self._classifier.predictions(bottoms))

    def _add(self, seen: Predictions) -> None:
        correct = seen.right().sum()
        self._correct = correct if self._correct is None else self._correct + correct
        self._counted = self._counted + (seen.labels.numel() if seen.counts is None else seen.counts.sum())
