"""Makes batches from a source, of transformed images or of rows."""

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
    """Makes this rank's share of a whole batch, when called with the batch's position in the sampler's stream.

    It does not read the rest of the batch.

    Args:
        workers: threads that decode and transform; they end when the source is closed. ``ALONE`` is the fastest choice
            for samples that need no decoding.

    Attributes:
        share: this rank's samples of a whole batch.
        rotation_of_shares: the rule by which shares rotate; ``None``: they never do.
        epoch: number of samples of the source.
        sampler: the order of its samples.
        watch: reports numbers in the data that are not finite.
        events: the log of events, which gets one for each batch.
        allocated: the stream if this process has only some of the samples; ``None``: it has all.
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
        """Release the samples of ``gives`` and allocate those of ``runs`` while no batch is being made.

        See AllocatedSampler.
        """
        self.allocated = self.allocated or AllocatedSampler(self.sampler)
        self.allocated.release(position, gives)
        self.allocated.allocate(position, runs, begun)

    def rotation(self, position: int) -> float:
        """Return the rotation of shares in the batch at ``position``, as a fraction of the batch."""
        return self.rotation_of_shares.part(position // self.share.total) if self.rotation_of_shares else 0.0

    def __call__(self, position: int) -> tuple[Tensor, ...]:
        """Return the share's samples in its order: a float32 tensor for each top, with a row for each sample."""
        with self.events.during(Activity.MAKE_BATCH):
            return self._make(position)

    def _make(self, position: int) -> tuple[Tensor, ...]:
        runs = self.share.runs(self.share.shift(self.rotation(position)))
        # Read in the order of the stream, because going back is slow for some sources.
        stream = self.allocated or self.sampler
        draws = [stream.indices(position + begin, end - begin) for begin, end in sorted(runs)]
        draw = SampleDraw(*map(np.concatenate, zip(*draws, strict=True))) if draws else stream.indices(position, 0)
        batch = self._read(draw)
        if len(runs) < 2:
            return batch
        return self._reordered(batch, len(draws[0].samples))

    def _reordered(self, batch: tuple[Tensor, ...], behind: int) -> tuple[Tensor, ...]:
        """Move the first ``behind`` samples of the batch to its end."""
        return tuple(torch.cat((top[behind:], top[:behind]), out=empty(*top.shape)) for top in batch)

    @property
    def skipped(self) -> Set[int]:
        """The samples of the source that have been skipped and replaced by others so far."""
        return self._source.skipped if isinstance(self._source, SkippingSource) else frozenset()

    @property
    def path(self) -> str:
        """The path of the source, for messages."""
        return self._source.path

    def digest(self) -> str:
        """Return the digest of the source, by which ranks check that they read the same data (``digest_of``)."""
        return digest_of(self._source)

    def key(self, place: int) -> str:
        """Return what names the sample at ``place`` of the stream, such as its file; "" if nothing does.

        It may read the sample, so no batch may be made meanwhile.
        """
        return ""

    @abstractmethod
    def _read(self, draw: SampleDraw) -> tuple[Tensor, ...]:
        """Return the samples of ``draw``."""

    def close(self) -> None:
        """Close the files and end the workers; the object cannot be used afterwards."""
        self._workers.close()
        self._source.close()


class ImageBatches(Batches[Source]):
    """Batches of (data (B, C, h, w), label (B,)).

    As in Caffe, batches may have different image sizes, but all images of a batch must have one size. A share without
    samples has the size of the source's first image.

    Args:
        augment: further augmentation of images; if it mixes them, labels are distributions (B, classes).
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

    def key(self, place: int) -> str:
        try:
            return self._source.read(int(self.sampler.indices(place, 1).samples[0])).key
        except DataError:
            return ""

    def _images(
        self, draw: SampleDraw, chosen: Integers, transform: Transform, augment: Augment | None
    ) -> tuple[Tensor, list[Sample]]:
        """Return the samples ``chosen``, and their images, transformed with the random numbers of ``draw``."""
        indices = chosen.tolist()
        if self._workers.count > 1:
            # This thread reads records one after the other, while workers decode the previous ones.
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
    """Divide ``range(count)`` into at most ``parts`` slices."""
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends) if start < end]


def empty(*shape: int) -> Tensor:
    """Return a new float32 tensor to fill, in pinned memory if the run uses a GPU, for asynchronous copies.

    It is new for each batch, because the consumer may still hold the previous one.
    """
    pinned: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.empty(shape, dtype=torch.float32, pin_memory=pinned)
