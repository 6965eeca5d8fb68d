"""VolumeData: volumes and labels from NIfTI files."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.volume_source import VolumeBatches, VolumeSource, VolumeTransform
from bpt.graph.layer_spec import FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.prefetching import PrefetchingDataLayer

FIELD = "volume_data_param"


@LAYERS.register("VolumeData")
class VolumeData(PrefetchingDataLayer):
    """Tops: volumes (B, 1, D, H, W) and, if named, labels (B,) of the NIfTI files that ``source`` lists (bpt's own).

    A line of the list has a path and, as its last word, a label. D runs from left to right, H from back to front, W
    from below to above (RAS+), whatever the file's axes. The volumes come in the list's order, round and round, also
    within a batch; with ``shuffle`` in a new order every epoch. Each is resampled to ``shape``, its intensities are
    changed as ``intensity`` says and, in training, it is mirrored and moved at random. See ``VolumeSource`` for what
    stays in memory.
    """

    field = prefetch_field = FIELD
    files = ((f"{FIELD}.source", FileKind.VOLUME_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> VolumeSource:
        param = spec.param.volume_data_param
        return VolumeSource(path, param.root_folder, _shape(spec), param.intensity)

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: VolumeSource, share: Share, seed: int) -> VolumeBatches:
        sampler = cls.sampler_of(spec, [len(source)], seed)
        return VolumeBatches(source, sampler, _transform(spec, seed), _shape(spec), share)

    @classmethod
    def sample_shape(cls, spec: LayerSpec) -> Shape:
        return (1, *_shape(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        return pb.ImagePreprocessing(channels=1, intensity=spec.param.volume_data_param.intensity)

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        shape = _shape(spec)
        if spec.param.HasField("transform_param"):
            raise spec.error(
                f"VolumeData has its own transformations, in {FIELD}; take transform_param out", "transform_param"
            )
        with errors_at(spec, FIELD, "shift"):
            _transform(spec).check(shape)
        cls.open(spec)
        return (batch_size, 1, *shape), (batch_size,)


def _shape(spec: LayerSpec) -> Shape:
    """(D, H, W) that the text asks for."""
    given = tuple(spec.param.volume_data_param.shape)
    if len(given) not in (1, 3) or min(given) < 1:
        raise spec.error(
            f"{FIELD} needs a shape: 3 numbers of voxels, or one for all axes, each at least 1; not {list(given)}",
            FIELD,
            "shape",
        )
    return given * 3 if len(given) == 1 else given


def _transform(spec: LayerSpec, seed: int = 0) -> VolumeTransform:
    param = spec.param.volume_data_param
    return VolumeTransform(mirror=param.mirror, shift=param.shift, phase=spec.param.phase, seed=seed)
