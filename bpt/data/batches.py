"""Batches made from a source: of transformed images, and of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.data.hdf5_source import Hdf5Source
from bpt.data.sampler import Sampler
from bpt.data.source import Source
from bpt.data.transform import Transform
from bpt.errors import DataError


class ImageBatches:
    """Called with a position of the sampler's stream, it makes the batch that starts there.

    The batch is (data (B, C, h, w), label (B,)), float32. Images of another size than the last batch's
    give a batch of that size, as in Caffe; within a batch all must agree.
    """

    def __init__(self, source: Source, sampler: Sampler, transform: Transform, batch_size: int) -> None:
        self._source = source
        self._sampler = sampler
        self._transform = transform
        self._batch_size = batch_size

    def __call__(self, position: int) -> tuple[Tensor, ...]:
        draw = self._sampler.indices(position, self._batch_size)
        samples = [self._source.read(index) for index in draw.samples.tolist()]
        try:
            shape = self._transform.common_shape(samples)
        except DataError as error:
            raise DataError(f"{self._source.path}: {error}") from None
        data = _empty(self._batch_size, *shape)
        self._transform(samples, draw, data.numpy())
        label = _empty(self._batch_size)
        label.numpy()[:] = [sample.label for sample in samples]
        return data, label

    def close(self) -> None:
        self._source.close()


class RowBatches:
    """Called with a position of the sampler's stream, it makes the batch that starts there.

    The batch has a tensor (B, *row shape), float32, for each dataset of the source.
    """

    def __init__(self, source: Hdf5Source, sampler: Sampler, batch_size: int) -> None:
        self._source = source
        self._sampler = sampler
        self._batch_size = batch_size

    def __call__(self, position: int) -> tuple[Tensor, ...]:
        rows = self._source.rows(self._sampler.indices(position, self._batch_size).samples)
        return tuple(_empty(*values.shape).copy_(torch.from_numpy(values)) for values in rows)

    def close(self) -> None:
        self._source.close()


def _empty(*shape: int) -> Tensor:
    """A float32 tensor to fill, in pinned memory if the run uses a GPU, so that it is copied there meanwhile.

    A fresh one each time: the consumer may still hold the last batch.
    """
    pinned: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.empty(shape, pin_memory=pinned)
