"""ImageData: images and labels from image files."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import DataError, FileError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.batches import ImageBatches
from bpt.data.damaged_samples import ReportingSource, handle_damage
from bpt.data.image_source import ImageSource
from bpt.data.sampler import Sampler
from bpt.data.source import Sample
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, prefetch_of, seed_of, source_of
from bpt.nn.layers.transform_param import (
    augment_of,
    notice_old_fields,
    preprocessing_of,
    shapes_of,
    transform_of,
    workers_of,
)
from bpt.nn.pass_context import PassContext

FIELD = "image_data_param"


@LAYERS.register("ImageData")
class ImageData(PrefetchingDataLayer):
    """Tops: images (B, C, H, W) and labels (B,) of the image files that ``source`` lists.

    A line of the list has a path and, as its last word, a label. Images have the channels blue, green, red, or, with
    ``is_color: false``, gray. They are resized to ``new_height`` × ``new_width``, if these are given, and transformed
    by ``transform_param``; ``num_workers`` threads do that. They come in the list's order, round and round, also
    within a batch; with ``shuffle`` in a new order every epoch. ``rand_skip`` skips a random number of lines at the
    start, less than it. ``data_param { prefetch }`` says how many batches are made ahead (4). With ``on_error: SKIP``
    the next image that can be read takes the place of one that cannot.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    reads = frozenset({"transform_param", "data_param"})  # of data_param prefetch, as in Caffe
    files = ((f"{FIELD}.source", FileKind.IMAGE_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)
    reads_images = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.image_data_param
        seed = seed_of(spec, context)
        skip = derive_seed(seed, "rand_skip") % param.rand_skip if param.rand_skip else 0
        source = _open(spec)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed, skip=skip)
        share = context.split(param.batch_size)
        transform, augment = transform_of(spec, seed, augments=True), augment_of(spec, seed)
        batches = ImageBatches(source, sampler, transform, share, workers_of(spec), augment)
        super().__init__(spec, context, batches, prefetch_of(spec))
        notice_old_fields(spec, FIELD)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.image_data_param
        batch_size = batch_size_of(spec, FIELD)
        prefetch_of(spec)
        for name in ("ignore_label", "label_type"):
            if param.HasField(name):
                raise spec.error(f"{name} is a setting of ImageSegData", FIELD, name)
        if bool(param.new_height) != bool(param.new_width):
            raise spec.error("give new_height and new_width, or neither", FIELD)
        transform = transform_of(spec, augments=True)
        if transform.channels not in (None, _channels(spec)):
            word = "force_color" if transform.channels == 3 else "force_gray"
            raise spec.error(
                f"{word} contradicts is_color: {str(param.is_color).lower()}; ImageData goes by is_color",
                "transform_param",
            )
        try:
            first = _open(spec, reports=False).read(0).image.shape
        except DataError as error:
            raise spec.error(str(error), FIELD, "source") from None
        return shapes_of(spec, batch_size, first, transform, augment_of(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        param = spec.param.image_data_param
        size = (param.new_height, param.new_width) if param.new_height else ()
        return preprocessing_of(spec, _channels(spec), size)


def _channels(spec: LayerSpec) -> int:
    return 3 if spec.param.image_data_param.is_color else 1


def _open(spec: LayerSpec, reports: bool = True) -> ReportingSource[Sample]:
    param = spec.param.image_data_param
    size = (param.new_height, param.new_width) if param.new_height else ()
    try:
        source = ImageSource(
            source_of(spec, FIELD),
            root_folder=param.root_folder,
            size=size,
            channels=_channels(spec),
            remedy="mend the file, or take its line out of the list",
        )
    except FileError as error:
        raise spec.error(str(error), FIELD, "source") from None
    return handle_damage(source, param.on_error == pb.ImageDataParameter.SKIP, reports)
