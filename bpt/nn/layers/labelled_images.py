"""DenseImageData, ImageSegData and ImageLabelmapData: images with a label for each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from bpt.base.errors import DataError, FileError, UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.damaged_samples import ReportingSource, handle_damage
from bpt.data.labelled_pixels import Labelled, LabelledBatches, LabelledSource, LabelsOf, PixelTransform
from bpt.data.sampler import Sampler
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import notice
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, prefetch_of, seed_of, source_of
from bpt.nn.layers.transform_param import check_workers, notice_old_fields, workers_of
from bpt.nn.pass_context import PassContext

# What transform_param may say: all else would change images, and not their labels.
_KNOWN = ("scale", "mirror", "crop_size", "mean_value", "mean_file", "num_workers")


class LabelledImages(PrefetchingDataLayer):
    """What the three have in common: a list, whose lines have the path of an image and that of its image of labels.

    Tops: images (B, C, h, w), their channels blue, green, red, or gray with ``is_color: false``; and labels (B, 1, h,
    w). Both are resized to ``new_height`` × ``new_width``, if given (labels take the nearest pixel), cropped at the
    same place and flipped alike; ``transform_param`` has ``crop_size``, ``mirror``, ``scale``, ``mean_value`` and
    ``mean_file``, the latter three for images. Order, ``shuffle``, ``rand_skip``, threads and ``prefetch`` are as for
    ImageData.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    reads = frozenset({"transform_param", "data_param"})
    reads_images = True
    field: ClassVar[str]

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = self.param(spec)
        seed = seed_of(spec, context)
        skip = derive_seed(seed, "rand_skip") % param.rand_skip if param.rand_skip else 0
        source = self._open(spec)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed, skip=skip)
        share = context.split(param.batch_size)
        batches = LabelledBatches(source, sampler, self._transform(spec, seed), share, workers_of(spec))
        super().__init__(spec, context, batches, prefetch_of(spec))

    @classmethod
    def param(cls, spec: LayerSpec) -> Any:
        return getattr(spec.param, cls.field)

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        """Return what a line of the list holds behind the path of an image."""
        return LabelsOf.PIXELS

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = cls.param(spec)
        batch_size = batch_size_of(spec, cls.field)
        prefetch_of(spec)
        if bool(param.new_height) != bool(param.new_width):
            raise spec.error("give new_height and new_width, or neither", cls.field)
        check_workers(spec)
        for setting, _ in spec.param.transform_param.ListFields():
            if setting.name not in _KNOWN:
                why = f"{setting.name} is not for {spec.type}, which knows {', '.join(_KNOWN)}"
                raise spec.error(why, "transform_param", setting.name)
        transform = cls._transform(spec, 0)
        try:
            first = cls._open(spec, reports=False).read(0).image.shape
        except DataError as error:
            raise spec.error(str(error), cls.field, "source") from None
        try:
            shape = transform.infer(first)
        except UserError as error:
            raise spec.error(str(error), "transform_param") from None
        tops = (batch_size, *shape), (batch_size, 1, *shape[1:]), (batch_size, 1, 1, 2)
        return LayerShapes(tops[: len(spec.tops)])

    @classmethod
    def _open(cls, spec: LayerSpec, reports: bool = True) -> ReportingSource[Labelled]:
        param = cls.param(spec)
        try:
            source = LabelledSource(
                source_of(spec, cls.field),
                cls.labels(spec),
                root_folder=param.root_folder,
                size=(param.new_height, param.new_width) if param.new_height else (),
                channels=3 if param.is_color else 1,
                nothing=spec.param.image_data_param.ignore_label,
            )
        except FileError as error:
            raise spec.error(str(error), cls.field, "source") from None
        skips = cls.field == "image_data_param" and param.on_error == pb.ImageDataParameter.SKIP
        return handle_damage(source, skips, reports)

    @classmethod
    def _transform(cls, spec: LayerSpec, seed: int) -> PixelTransform:
        param = spec.param.transform_param
        try:
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
        except UserError as error:
            raise spec.error(str(error), "transform_param") from None

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
    """See LabelledImages. ``crop_height``, ``crop_width`` and ``mirror`` stand in ``dense_image_data_param``, too.

    Crops are at random in training, where SegNet's Caffe crops tests at random, too.
    """

    field = "dense_image_data_param"
    files = (
        ("dense_image_data_param.source", FileKind.IMAGE_LIST),
        ("dense_image_data_param.root_folder", FileKind.FOLDER),
        *DataLayer.files,
    )

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
    """See LabelledImages. ``label_type: IMAGE`` gives all pixels the line's label, ``NONE`` gives ``ignore_label``.

    An image smaller than the crop is put at its upper left, with means around, labelled ``ignore_label`` (255). A third
    top, (B, 1, 1, 2), has height and width of the images within crops. (Of DeepLab's Caffe.)
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 3))
    field = "image_data_param"
    settings = "image_data_param"
    files = (
        ("image_data_param.source", FileKind.IMAGE_LIST),
        ("image_data_param.root_folder", FileKind.FOLDER),
        *DataLayer.files,
    )

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        notice_old_fields(spec, self.field)

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        kinds = pb.ImageDataParameter
        return {kinds.NONE: LabelsOf.NOTHING, kinds.IMAGE: LabelsOf.IMAGE, kinds.PIXEL: LabelsOf.PIXELS}[
            spec.param.image_data_param.label_type
        ]

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if spec.param.image_data_param.ignore_label > 255:
            raise spec.error("ignore_label must be at most 255, as labels are pixels", cls.field, "ignore_label")
        return super().infer(spec, bottoms)

    @classmethod
    def padding(cls, spec: LayerSpec) -> int | None:
        return int(spec.param.image_data_param.ignore_label)


@LAYERS.register("ImageLabelmapData")
class ImageLabelmapData(LabelledImages):
    """See LabelledImages. The second image of a line shows edges: labels are 1 where it is lighter than half, else 0.

    It is resized like the image, by interpolation. (Xie, Tu, *Holistically-Nested Edge Detection*, 2015.)
    """

    field = "image_data_param"
    settings = "image_data_param"
    files = ImageSegData.files

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        notice_old_fields(spec, self.field)

    @classmethod
    def labels(cls, spec: LayerSpec) -> LabelsOf:
        return LabelsOf.EDGES
