"""What all layers share that read a data set ahead of its use (Caffe: BasePrefetchingDataLayer)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from bpt.context import RunContext, derive_seed
from bpt.data.prefetch import Prefetcher
from bpt.graph.spec import LayerSpec, Shape
from bpt.layers.base import DataLayer

log = logging.getLogger("bpt")


class Batches(Protocol):
    """Makes the batch that starts at a position, and owns the files that it is read from."""

    def __call__(self, position: int) -> tuple[Tensor, ...]: ...

    def close(self) -> None: ...


class PrefetchingDataLayer(DataLayer):
    """Hands out what ``batches`` makes, while a thread prepares the next ``prefetch`` of them."""

    def __init__(self, spec: LayerSpec, context: RunContext, batches: Batches, batch_size: int, prefetch: int) -> None:
        super().__init__(spec, context)
        self._batches = batches
        self._prefetcher = Prefetcher(batches, batch_size, prefetch)

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return 0

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        tops = self._prefetcher.next()[: len(self.spec.tops)]
        return tops[0] if len(tops) == 1 else tops

    @property
    def position(self) -> int:
        return self._prefetcher.position

    @position.setter
    def position(self, samples: int) -> None:
        self._prefetcher.position = samples

    def close(self) -> None:
        self._prefetcher.close()
        self._batches.close()


def batch_size_of(spec: LayerSpec, field: str) -> int:
    """``batch_size`` of the layer's parameter message ``field``; a LayerError if it is missing or 0."""
    size: int = getattr(spec.param, field).batch_size
    if size < 1:
        raise spec.error(f"{field} needs a batch_size of at least 1", field, "batch_size")
    return size


def source_of(spec: LayerSpec, field: str) -> str:
    """``source`` of the layer's parameter message ``field``; a LayerError if it is missing."""
    source: str = getattr(spec.param, field).source
    if not source:
        raise spec.error(f"{field} needs a source", field, "source")
    return source


def seed_of(spec: LayerSpec, context: RunContext) -> int:
    """The seed of everything random in this layer's data."""
    return derive_seed(context.seed, "data", spec.name)


def notice(spec: LayerSpec, message: str, *path: str) -> None:
    """Log what the user should know of the field ``path`` of this layer."""
    log.warning("%s", spec.error(message, *path))
