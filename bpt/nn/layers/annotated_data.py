"""AnnotatedData: images and the objects in them, as boxes, from an LMDB."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import AnnotatedSource
from bpt.data.annotated_batches import AnnotatedBatches
from bpt.data.annotated_transform import AnnotatedTransform
from bpt.data.detection.truth import ROW
from bpt.data.source import a_few, size_of
from bpt.graph.layer_spec import FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import (
    OLD_FIELDS,
    channels_of,
    check_workers,
    preprocessing_of,
    workers_of,
)

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

    field = FIELD
    old_fields = OLD_FIELDS
    listed = (1,)
    reads = frozenset({"transform_param", "data_param"})
    files = (
        (f"{FIELD}.source", FileKind.LMDB),
        ("annotated_data_param.label_map_file", FileKind.LABEL_MAP),
        *DataLayer.files,
    )
    reads_images = True

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> AnnotatedSource:
        param = spec.param.data_param
        channels = 3 if param.force_encoded_color else channels_of(spec)
        return AnnotatedSource(path, random_access=param.shuffle, channels=channels)

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: AnnotatedSource, share: Share, seed: int) -> AnnotatedBatches:
        sampler = cls.sampler_of(spec, [len(source)], seed)
        has_boxes = _has_boxes(spec, source)
        return AnnotatedBatches(source, sampler, _transform_of(spec, seed), share, has_boxes, workers_of(spec))

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        transform = _transform_of(spec)
        with closing(cls.open(spec)) as source:
            first, has_boxes = source.read(0).image.shape, _has_boxes(spec, source)
        with errors_at(spec, "transform_param"):
            shape = transform.infer(first)
        return (batch_size, *shape), (1, 1, 1, ROW) if has_boxes else (batch_size,)

    @classmethod
    def label_shape(cls, batch: int) -> Shape:
        return (1, 1, 1, ROW)

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        """Return the transform that ``resize_param`` asks for or, without it, that of Data."""
        with closing(cls.open(spec)) as source:
            channels, size = size_of(source.read(index).image for index in a_few(len(source)))
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
    with errors_at(spec, "transform_param"):
        return AnnotatedTransform(param.transform_param, param.phase, param.annotated_data_param.batch_sampler, seed)
