"""Batches of images with their objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bpt.base.errors import DataError, UserError
from bpt.data.annotated import AnnotatedSample, AnnotatedSource, Objects
from bpt.data.annotated_transform import AnnotatedTransform
from bpt.data.batches import Batches, empty
from bpt.data.detection.truth import ROW
from bpt.data.prefetch import ALONE, Workers
from bpt.data.sampler import SampleDraw, Sampler
from bpt.data.source import Sample
from bpt.graph.layer_spec import Shape
from bpt.graph.share import Share


class AnnotatedBatches(Batches[AnnotatedSource]):
    """Batches of (data (B, C, h, w), objects (1, 1, rows, 8)), or, without ``boxes``, of (data, label (B,)).

    A row is (number of the image in this rank's share, label, instance, xmin, ymin, xmax, ymax, difficult). A share
    without objects has one row of -1.
    """

    def __init__(
        self,
        source: AnnotatedSource,
        sampler: Sampler,
        transform: AnnotatedTransform,
        share: Share,
        boxes: bool,
        workers: Workers = ALONE,
    ) -> None:
        super().__init__(source, sampler, share, workers)
        self._transform, self._boxes = transform, boxes
        self._first: Shape = ()

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        epochs, indices = draw.epochs.tolist(), draw.samples.tolist()
        if not indices:
            self._first = self._first or self._transform.infer(self._source.read(0).image.shape)
            return empty(0, *self._first), self._rows([]) if self._boxes else empty(0)
        begun = map(self._source.begin, indices)
        tasks = (partial(self._prepare, *each) for each in zip(begun, epochs, indices, strict=True))
        samples, objects = zip(*self._workers.run(tasks), strict=True)
        try:
            shape = self._transform.last.common_shape(samples)
        except DataError as error:
            raise DataError(f"{self._source.path}: {error}") from None
        data = empty(len(samples), *shape)
        placed = self._transform(samples, objects, draw, data.numpy())
        if self._boxes:
            return data, self._rows(placed)
        label = empty(len(samples))
        label.numpy()[:] = [sample.label for sample in samples]
        return data, label

    def _prepare(self, begun: Callable[[], AnnotatedSample], epoch: int, index: int) -> tuple[Sample, Objects]:
        try:
            return self._transform.prepared(begun(), epoch, index)
        except UserError as error:
            raise DataError(f"{self._source.path}: {error}") from None

    @staticmethod
    def _rows(objects: Sequence[Objects]) -> Tensor:
        """Return the objects of all images as rows, each with the number of its image in front."""
        count = sum(map(len, objects))
        rows = empty(1, 1, max(1, count), ROW).fill_(-1)
        if count:
            table = rows.numpy()[0, 0]
            table[:, 0] = np.repeat(np.arange(len(objects)), [len(own) for own in objects])
            np.concatenate(list(objects), out=table[:, 1:])
        return rows

    def _reordered(self, batch: tuple[Tensor, ...], behind: int) -> tuple[Tensor, ...]:
        if not self._boxes:
            return super()._reordered(batch, behind)
        data, rows = batch
        images = rows[0, 0, :, 0]
        if len(images) and images[0] >= 0:
            moved = rows.clone()
            moved[0, 0, :, 0] = (images - behind) % len(data)
            rows = moved[:, :, moved[0, 0, :, 0].argsort(stable=True)]
        return (*super()._reordered((data,), behind), torch.clone(rows, memory_format=torch.contiguous_format))
