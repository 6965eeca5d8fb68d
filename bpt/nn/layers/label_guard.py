"""LabelGuard: checks labels on a device without a stop of the host, which reads later whether all were classes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.graph.layer_spec import LayerSpec

_ACTIVE = threading.local()


class LabelGuard:
    """The labels that layers have seen and that are no classes, by layer.

    Inside ``active``, layers hand their labels to ``admit``. It replaces a wrong one by class 0, so that no kernel
    reads out of bounds, and notes the least and the greatest on the device. ``check`` reads these.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[LayerSpec, int, Tensor]] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Give the layers that the calling thread runs inside to this guard."""
        before = active_guard()
        _ACTIVE.guard = self
        try:
            yield
        finally:
            _ACTIVE.guard = before

    def admit(self, spec: LayerSpec, indices: Tensor, classes: int, ignore_label: int | None) -> Tensor:
        """Return ``indices``, int64, in which those that are neither a class nor ``ignore_label`` are 0."""
        wrong = (indices < 0) | (indices >= classes)
        if ignore_label is not None:
            wrong &= indices != ignore_label
        admitted = indices.masked_fill(wrong, 0)
        if indices.numel():
            refused = indices.masked_fill(~wrong, 0)
            extremes = torch.stack((-refused.amin(), refused.amax()))
            if spec.name not in self._seen:
                self._seen[spec.name] = spec, classes, torch.zeros_like(extremes)
            torch.maximum(self._seen[spec.name][2], extremes, out=self._seen[spec.name][2])
        return admitted

    def refused(self) -> bool:
        """Return whether a label since the last call was no class; the host waits for the device."""
        found = [extremes for _, _, extremes in self._seen.values() if any(extremes.tolist())]
        for extremes in found:
            extremes.zero_()
        return bool(found)

    def check(self) -> None:
        """Raise a DataError if a label since the last call was no class; the host waits for the device."""
        for spec, classes, extremes in self._seen.values():
            below, above = extremes.tolist()
            if not (below or above):
                continue
            extremes.zero_()
            wrong = -below if below else above
            raise DataError(
                f'layer "{spec.name}": label {wrong} in "{spec.bottom_names[1]}", since the last display, is outside '
                f'[0, {classes}), the classes of "{spec.bottom_names[0]}"; display: 1 finds the iteration'
            )


def active_guard() -> LabelGuard | None:
    """Return the guard that the calling thread's layers hand their labels to, if there is one."""
    guard: LabelGuard | None = getattr(_ACTIVE, "guard", None)
    return guard
