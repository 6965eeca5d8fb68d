"""VolumeData: volumes and labels from NIfTI files."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.sampler import Sampler
from bpt.data.volume_source import VolumeBatches, VolumeSource, VolumeTransform
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, seed_of, source_of
from bpt.nn.pass_context import PassContext

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

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    files = ((f"{FIELD}.source", FileKind.VOLUME_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.volume_data_param
        seed = seed_of(spec, context)
        shape = _shape(spec)
        source = _open(spec, shape)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed)
        share = context.split(param.batch_size)
        batches = VolumeBatches(source, sampler, _transform(spec, seed), shape, share)
        super().__init__(spec, context, batches, param.prefetch)

    @classmethod
    def sample_shape(cls, spec: LayerSpec) -> Shape:
        return (1, *_shape(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        return pb.ImagePreprocessing(channels=1, intensity=spec.param.volume_data_param.intensity)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, FIELD)
        shape = _shape(spec)
        if spec.param.volume_data_param.prefetch < 1:
            raise spec.error("prefetch must be at least 1", FIELD, "prefetch")
        if spec.param.HasField("transform_param"):
            raise spec.error(
                f"VolumeData has its own transformations, in {FIELD}; take transform_param out", "transform_param"
            )
        try:
            _transform(spec).check(shape)
        except UserError as error:
            raise spec.error(str(error), FIELD, "shift") from None
        _open(spec, shape)
        return LayerShapes(((batch_size, 1, *shape), (batch_size,))[: len(spec.tops)])


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


def _open(spec: LayerSpec, shape: Shape) -> VolumeSource:
    param = spec.param.volume_data_param
    try:
        return VolumeSource(source_of(spec, FIELD), param.root_folder, shape, param.intensity)
    except FileError as error:
        raise spec.error(str(error), FIELD, "source") from None
