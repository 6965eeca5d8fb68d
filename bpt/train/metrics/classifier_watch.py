"""ClassifierWatch: observes the bottoms of a net's classifying layer in each pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bpt.nn.net import Net
from bpt.train.metrics.classifier_layer import Predictions, find_classifier

Watch = TypeVar("Watch", bound="ClassifierWatch")


class ClassifierWatch(ABC):
    """A context in which ``_take`` gets the bottoms of the ``classifying_node`` in each forward pass.

    It does not change results, and works with any operator. Each rank sees only its own samples.
    """

    def __init__(self, net: Net) -> None:
        self._classifier = find_classifier(net)
        self._hook: RemovableHandle | None = None

    @abstractmethod
    def _take(self, seen: Predictions) -> None:
        """Record the predictions of a pass, which have no gradients."""

    def __enter__(self: Watch) -> Watch:
        assert self._hook is None, "it is entered already"
        if self._classifier is not None:
            self._hook = self._classifier.layer.register_forward_hook(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @torch.no_grad()
    def _look(self, layer: nn.Module, bottoms: tuple[Tensor, ...], tops: object) -> None:
        assert self._classifier is not None
        self._take(self._classifier.predictions(bottoms))
