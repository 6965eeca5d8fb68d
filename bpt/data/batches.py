"""Batches made from a source: of transformed images, and of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from functools import partial
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from bpt.base.errors import DataError
from bpt.data.assigned_samples import AllocatedSampler
from bpt.data.augment import Augment
from bpt.data.damaged_samples import SkippingSource
from bpt.data.finite import FiniteWatch, all_finite
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.prefetch import ALONE, Workers
from bpt.data.sample_partition import Run
from bpt.data.sampler import Integers, SampleDraw, Sampler
from bpt.data.source import Comparable, Sample, Source, digest_of
from bpt.data.transform import Transform
from bpt.graph.layer_spec import Shape
from bpt.graph.share import ShardRotation, Share
from bpt.system.events.bus import EventBus
from bpt.system.events.event import Activity

S = TypeVar("S", bound=Comparable)


class Batches(ABC, Generic[S]):
    """Called with a position of the sampler's stream, it makes this rank's share of the whole batch that starts there.

    Nothing else of the batch is read.

    Args:
        workers: who decodes and transforms; closed together with the source. ``ALONE`` is quickest where nothing has to
            be decoded.

    Attributes:
        share: which samples of a whole batch are this rank's.
        rotation_of_shares: when shares are rotated; ``None``: never.
        epoch: samples of the source.
        sampler: the order of its samples.
        watch: tells what is not finite in the data.
        events: where it is noted that a batch is made.
        allocated: the stream, once only some of the samples are this process's; ``None``: all are.
    """

    def __init__(self, source: S, sampler: Sampler, share: Share, workers: Workers = ALONE) -> None:
        self._source = source
        self._workers = workers
        self.share = share
        self.rotation_of_shares: ShardRotation | None = None
        self.epoch = sampler.size
        self.sampler = sampler
        self.events = EventBus()
        self.allocated: AllocatedSampler | None = None
        self.watch = FiniteWatch()

    def allocate(self, position: int, runs: Sequence[Run], begun: int = 0, gives: Sequence[Run] = ()) -> None:
        """Release the samples of ``gives`` and allocate those of ``runs`` (AllocatedSampler).

        No batch may be made meanwhile.
        """
        self.allocated = self.allocated or AllocatedSampler(self.sampler)
        self.allocated.release(position, gives)
        self.allocated.allocate(position, runs, begun)

    def rotation(self, position: int) -> float:
        """Return the part of the batch by which shares are rotated in the batch at ``position``."""
        return self.rotation_of_shares.part(position // self.share.total) if self.rotation_of_shares else 0.0

    def __call__(self, position: int) -> tuple[Tensor, ...]:
        """Return the share's samples in its order: a float32 tensor for each top, with a row a sample, perhaps none."""
        with self.events.during(Activity.MAKE_BATCH):
            return self._make(position)

    def _make(self, position: int) -> tuple[Tensor, ...]:
        runs = self.share.runs(self.share.shift(self.rotation(position)))
        # Read in the order of the stream: no source likes to go back.
        stream = self.allocated or self.sampler
        draws = [stream.indices(position + begin, end - begin) for begin, end in sorted(runs)]
        draw = SampleDraw(*map(np.concatenate, zip(*draws, strict=True))) if draws else stream.indices(position, 0)
        batch = self._read(draw)
        if len(runs) < 2:
            return batch
        return self._reordered(batch, len(draws[0].samples))

    def _reordered(self, batch: tuple[Tensor, ...], behind: int) -> tuple[Tensor, ...]:
        """Return the first ``behind`` samples, which stand first in the stream, behind the others."""
        return tuple(torch.cat((top[behind:], top[:behind]), out=empty(*top.shape)) for top in batch)

    @property
    def skipped(self) -> Set[int]:
        """The samples of the source that others have taken the places of, so far."""
        return self._source.skipped if isinstance(self._source, SkippingSource) else frozenset()

    @property
    def path(self) -> str:
        """The path of the source, for messages."""
        return self._source.path

    def digest(self) -> str:
        """Return what ranks compare to see that they read the same; see ``digest_of``."""
        return digest_of(self._source)

    @abstractmethod
    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        """Return the samples of ``draw``."""

    def close(self) -> None:
        """Give the files back. The object is not used afterwards."""
        self._workers.close()
        self._source.close()


class ImageBatches(Batches[Source]):
    """Batches of (data (B, C, h, w), label (B,)).

    Images of another size than the last batch's give a batch of that size, as in Caffe; within a batch all must agree.
    A share without samples is of the size that the first image of the source gets.

    Args:
        augment: what else is done to images; if it mixes them, labels are distributions (B, classes).
    """

    def __init__(
        self,
        source: Source,
        sampler: Sampler,
        transform: Transform,
        share: Share,
        workers: Workers = ALONE,
        augment: Augment | None = None,
    ) -> None:
        super().__init__(source, sampler, share, workers)
        self._augment = augment
        self._transform = transform
        self._first: Shape = ()

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        augment = self._augment
        data, samples = self._images(draw, draw.samples, self._transform, augment)
        label = empty(len(samples))
        label.numpy()[:] = [sample.label for sample in samples]
        if augment is not None and augment.mixes:
            partners, others = augment.partners(draw, len(self._source)), augment.of_partners()
            other, other_samples = self._images(draw, partners, self._transform.with_seed(others.seed), others)
            kept = augment.mix(data.numpy(), other.numpy(), draw)
            label = empty(len(samples), augment.param.num_classes)
            label.numpy()[:] = augment.labels(samples, other_samples, kept)
        return data, label

    def _images(
        self, draw: SampleDraw, chosen: Integers, transform: Transform, augment: Augment | None
    ) -> tuple[Tensor, list[Sample]]:
        """Return the images of the samples ``chosen``, by the random numbers of those of ``draw``; and the samples."""
        indices = chosen.tolist()
        if self._workers.count > 1:
            # Records are read one after the other, while workers decode those before.
            samples = self._workers.run(map(self._source.begin, indices))
        else:
            samples = [self._source.read(index) for index in indices]
        if not samples:
            if not self._first:
                image = self._source.read(0).image.shape
                self._first = transform.infer(augment.shape(image) if augment else image)
            return empty(0, *self._first), []
        try:
            if augment is not None:
                runs = [(run, SampleDraw(draw.epochs[run], draw.samples[run])) for run in _runs(len(samples), 8)]
                parts = self._workers.run(partial(augment.images, samples[run], of_run) for run, of_run in runs)
                samples = [sample for part in parts for sample in part]
            shape = transform.common_shape(samples)
        except DataError as error:
            raise DataError(f"{self._source.path}: {error}") from None
        for sample in samples:
            if sample.image.dtype != np.uint8:
                self.watch.check(sample.image, partial('{}: record "{}"'.format, self._source.path, sample.key))
        data = empty(len(samples), *shape)
        self._workers.run(
            partial(transform, samples[run], SampleDraw(draw.epochs[run], draw.samples[run]), data.numpy()[run])
            for run in _runs(len(samples), self._workers.count)
        )
        if augment is not None:
            augment.erase(data.numpy(), draw)
        return data, samples


class RowBatches(Batches[Hdf5Source]):
    """Batches with a tensor (B, *row shape) for each dataset of the source."""

    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        rows = self._source.rows(draw.samples)
        for name, values in zip(self._source.datasets, rows, strict=True):
            if not all_finite(values):
                for index, row in zip(draw.samples.tolist(), values, strict=True):
                    self.watch.check(row, partial(self._source.place, index, name))
        return tuple(empty(*values.shape).copy_(torch.from_numpy(values)) for values in rows)


def _runs(count: int, parts: int) -> list[slice]:
    """``range(count)`` in so many parts, or fewer if there is too little."""
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends) if start < end]


def empty(*shape: int) -> Tensor:
    """Return a float32 tensor to fill, in pinned memory if the run uses a GPU, so that it is copied there meanwhile.

    A fresh one each time: the consumer may still hold the last batch.
    """
    pinned: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.empty(shape, dtype=torch.float32, pin_memory=pinned)
