"""AnnotatedData: images and the objects in them, as boxes, from an LMDB."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import FileError, UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import AnnotatedSource
from bpt.data.annotated_batches import ROW, AnnotatedBatches
from bpt.data.annotated_transform import AnnotatedTransform
from bpt.data.sampler import Sampler
from bpt.data.source import a_few, size_of
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, prefetch_of, seed_of, source_of
from bpt.nn.layers.transform_param import check_workers, notice_old_fields, preprocessing_of, workers_of
from bpt.nn.pass_context import PassContext

FIELD = "data_param"


@LAYERS.register("AnnotatedData")
class AnnotatedData(PrefetchingDataLayer):
    """Images (B, C, H, W) and, if named, the boxes of their objects from an LMDB.

    The second top has rows (image, label, instance, xmin, ymin, xmax, ymax, difficult), ``(1, 1, rows, 8)``. The image
    is its place in the batch; boxes are in parts of the image. A batch without objects has one row of -1. The graph
    knows one row. Records are AnnotatedDatum, in the order of their keys or, by ``data_param { shuffle }``, in a new
    one every epoch. If neither they nor ``annotated_data_param { anno_type }`` name boxes, the second top holds labels
    (B,).

    ``transform_param`` may also have ``distort_param``, ``expand_param``, ``resize_param``, ``noise_param`` and
    ``emit_constraint``. Each ``batch_sampler`` draws parts of the image, of which one is taken. Draws depend on the
    seed, the epoch and the sample only. ``num_workers`` threads decode and transform.

    From SSD's Caffe (Liu et al., *SSD: Single Shot MultiBox Detector*, 2016, section 2.2).
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    listed = (1,)
    reads = frozenset({"transform_param", "data_param"})
    files = (
        (f"{FIELD}.source", FileKind.LMDB),
        ("annotated_data_param.label_map_file", FileKind.LABEL_MAP),
        *DataLayer.files,
    )
    reads_images = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.data_param
        seed = seed_of(spec, context)
        skip = derive_seed(seed, "rand_skip") % param.rand_skip if param.rand_skip else 0
        transform = _transform_of(spec, seed)
        source = _open(spec, transform)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed, skip=skip)
        share = context.split(param.batch_size)
        batches = AnnotatedBatches(source, sampler, transform, share, _has_boxes(spec, source), workers_of(spec))
        super().__init__(spec, context, batches, param.prefetch)
        notice_old_fields(spec, FIELD)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, FIELD)
        prefetch_of(spec)
        transform = _transform_of(spec)
        source = _open(spec, transform)
        try:
            first, boxes = source.read(0).image.shape, _has_boxes(spec, source)
        finally:
            source.close()
        try:
            shape = transform.infer(first)
        except UserError as error:
            raise spec.error(str(error), "transform_param") from None
        label: Shape = (1, 1, 1, ROW) if boxes else (batch_size,)
        return LayerShapes(((batch_size, *shape), label)[: len(spec.tops)])

    @classmethod
    def label_shape(cls, batch: int) -> Shape:
        return (1, 1, 1, ROW)

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        """As ``resize_param`` says or, without it, as Data's."""
        source = _open(spec, _transform_of(spec))
        try:
            channels, size = size_of(source.read(index).image for index in a_few(len(source)))
        finally:
            source.close()
        if not spec.param.transform_param.HasField("resize_param"):
            return preprocessing_of(spec, channels, size)
        found = preprocessing_of(spec, channels, ())
        resize = found.transform_param.resize_param
        resize.CopyFrom(spec.param.transform_param.resize_param)
        resize.prob = 1
        if len(resize.interp_mode) > 1:  # of which training draws one
            resize.ClearField("interp_mode")
        return found


def _has_boxes(spec: LayerSpec, source: AnnotatedSource) -> bool:
    return spec.param.annotated_data_param.HasField("anno_type") or source.has_boxes()


def _transform_of(spec: LayerSpec, seed: int = 0) -> AnnotatedTransform:
    param = spec.param
    check_workers(spec)
    try:
        return AnnotatedTransform(param.transform_param, param.phase, param.annotated_data_param.batch_sampler, seed)
    except UserError as error:
        raise spec.error(str(error), "transform_param") from None


def _open(spec: LayerSpec, transform: AnnotatedTransform) -> AnnotatedSource:
    param = spec.param.data_param
    channels = 3 if param.force_encoded_color else transform.last.channels
    try:
        return AnnotatedSource(source_of(spec, FIELD), random_access=param.shuffle, channels=channels)
    except FileError as error:
        raise spec.error(str(error), FIELD, "source") from None
