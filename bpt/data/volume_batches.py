"""Batches of volumes and labels."""

from __future__ import annotations

from torch import Tensor

from bpt.data.batches import Batches, empty
from bpt.data.sampler import Draw, Sampler
from bpt.data.volume_source import VolumeSource
from bpt.data.volume_transform import VolumeTransform
from bpt.graph.spec import Shape
from bpt.share import Share


class VolumeBatches(Batches):
    """Batches of (data (B, 1, D, H, W), label (B,)), where ``shape`` is (D, H, W)."""

    def __init__(
        self, source: VolumeSource, sampler: Sampler, transform: VolumeTransform, shape: Shape, share: Share
    ) -> None:
        super().__init__(sampler, share)
        self._source = source
        self._transform = transform
        self._shape = shape

    def _read(self, draw: Draw) -> tuple[Tensor, ...]:
        samples = draw.samples.tolist()
        data, label = empty(len(samples), 1, *self._shape), empty(len(samples))
        self._transform([self._source.read(index) for index in samples], draw, data.numpy())
        label.numpy()[:] = [self._source.entries[index].label for index in samples]
        return data, label

    def close(self) -> None:
        self._source.close()
