"""DenseImageData, ImageSegData and ImageLabelmapData: images with a label for each pixel."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.damaged_samples import ReportingSource, handle_damage
from bpt.data.labelled_pixels import Labelled, LabelledBatches, LabelledSource, LabelsOf, PixelTransform
from bpt.graph.layer_spec import Arity, FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at, notice
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import OLD_FIELDS, check_workers, new_size_of, workers_of
from bpt.nn.pass_context import PassContext

# What transform_param may say: all else would change images, and not their labels.
_KNOWN = ("scale", "mirror", "crop_size", "mean_value", "mean_file", "num_workers")


def _files_of(field: str) -> tuple[tuple[str, FileKind], ...]:
    return (f"{field}.source", FileKind.IMAGE_LIST), (f"{field}.root_folder", FileKind.FOLDER), *DataLayer.files


class LabelledImages(PrefetchingDataLayer):
    """The base of layers whose list has, in each line, the path of an image and that of its image of labels.

    Tops: images (B, C, h, w), their channels blue, green, red, or gray with ``is_color: false``; and labels (B, 1, h,
    w). Both are resized to ``new_height`` × ``new_width``, if given (labels take the nearest pixel), cropped at the
    same place and flipped alike; ``transform_param`` has ``crop_size``, ``mirror``, ``scale``, ``mean_value`` and
    ``mean_file``, the latter three for images. Order, ``shuffle``, ``rand_skip``, threads and ``prefetch`` are as for
    ImageData.
    """

    reads = frozenset({"transform_param", "data_param"})
    reads_images = True

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> ReportingSource[Labelled]:
        param = cls.settings_of(spec)
        source = LabelledSource(
            path,
            cls.labels(spec),
            root_folder=param.root_folder,
            size=new_size_of(spec, cls.field),
            channels=3 if param.is_color else 1,
            ignore_label=spec.param.image_data_param.ignore_label,
        )
        skips = cls.field == "image_data_param" and param.on_error == pb.ImageDataParameter.SKIP
        return handle_damage(source, skips)

    @classmethod
    def make_batches(
        cls, spec: LayerSpec, source: ReportingSource[Labelled], share: Share, seed: int
    ) -> LabelledBatches:
        sampler = cls.sampler_of(spec, [len(source)], seed)
        return LabelledBatches(source, sampler, cls._transform(spec, seed), share, workers_of(spec))

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        """Return what a line of the list holds behind the path of an image."""
        return LabelsOf.PIXELS

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        new_size_of(spec, cls.field)
        check_workers(spec)
        for setting, _ in spec.param.transform_param.ListFields():
            if setting.name not in _KNOWN:
                why = f"{setting.name} is not for {spec.type}, which knows {', '.join(_KNOWN)}"
                raise spec.error(why, "transform_param", setting.name)
        transform, source = cls._transform(spec, 0), cls.open(spec)
        source.reports = False
        with errors_at(spec, cls.field, "source", kinds=(DataError,)):
            first = source.read(0).image.shape
        with errors_at(spec, "transform_param"):
            shape = transform.infer(first)
        return (batch_size, *shape), (batch_size, 1, *shape[1:]), (batch_size, 1, 1, 2)

    @classmethod
    def _transform(cls, spec: LayerSpec, seed: int) -> PixelTransform:
        param = spec.param.transform_param
        with errors_at(spec, "transform_param"):
            return PixelTransform(
                param.mean_value,
                param.scale,
                cls.crop(spec),
                at_random=spec.param.phase == pb.TRAIN,
                mirror=cls.mirrors(spec),
                seed=seed,
                pad=cls.padding(spec),
                mean_file=param.mean_file,
            )

    @classmethod
    def crop(cls, spec: LayerSpec) -> Shape:
        size: int = spec.param.transform_param.crop_size
        return (size, size) if size else ()

    @classmethod
    def mirrors(cls, spec: LayerSpec) -> bool:
        return bool(spec.param.transform_param.mirror)

    @classmethod
    def padding(cls, spec: LayerSpec) -> int | None:
        """Return the label of what is put around an image that is smaller than the crop; ``None``: that is refused."""
        return None


@LAYERS.register("DenseImageData")
class DenseImageData(LabelledImages):
    """LabelledImages of SegNet: ``crop_height``, ``crop_width`` and ``mirror`` are in ``dense_image_data_param``, too.

    Crops are at random in training, where SegNet's Caffe crops tests at random, too.
    """

    field = "dense_image_data_param"
    files = _files_of(field)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        if spec.param.dense_image_data_param.HasField("mean_file"):
            notice(spec, "mean_file has no effect, as in Caffe; give mean_value", self.field, "mean_file")

    @classmethod
    def crop(cls, spec: LayerSpec) -> Shape:
        param = spec.param.dense_image_data_param
        own = (param.crop_height, param.crop_width)
        if bool(own[0]) != bool(own[1]):
            raise spec.error("give crop_height and crop_width, or neither", cls.field)
        if own[0] and spec.param.transform_param.crop_size:
            raise spec.error("give crop_size, or crop_height and crop_width", cls.field, "crop_height")
        return own if own[0] else super().crop(spec)

    @classmethod
    def mirrors(cls, spec: LayerSpec) -> bool:
        return spec.param.dense_image_data_param.mirror or super().mirrors(spec)


@LAYERS.register("ImageSegData")
class ImageSegData(LabelledImages):
    """LabelledImages of DeepLab: ``label_type: IMAGE`` gives all pixels the line's label, ``NONE`` ``ignore_label``.

    An image smaller than the crop is put at its upper left, with means around, labelled ``ignore_label`` (255). A third
    top, (B, 1, 1, 2), has height and width of the images within crops.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 3))
    field = settings = "image_data_param"
    old_fields = OLD_FIELDS
    files = _files_of(field)

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        kinds = pb.ImageDataParameter
        return {kinds.NONE: LabelsOf.NOTHING, kinds.IMAGE: LabelsOf.IMAGE, kinds.PIXEL: LabelsOf.PIXELS}[
            spec.param.image_data_param.label_type
        ]

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        if spec.param.image_data_param.ignore_label > 255:
            raise spec.error("ignore_label must be at most 255, as labels are pixels", cls.field, "ignore_label")
        return super().infer_tops(spec, batch_size)

    @classmethod
    def padding(cls, spec: LayerSpec) -> int | None:
        return int(spec.param.image_data_param.ignore_label)


@LAYERS.register("ImageLabelmapData")
class ImageLabelmapData(LabelledImages):
    """LabelledImages whose second image shows edges: labels are 1 where it is lighter than half, otherwise 0.

    It is resized like the image, by interpolation. (Xie, Tu, *Holistically-Nested Edge Detection*, 2015.)
    """

    field = settings = "image_data_param"
    old_fields = OLD_FIELDS
    files = _files_of(field)

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        return LabelsOf.EDGES
