"""ImageData: images and labels from image files."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import DataError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.batches import ImageBatches
from bpt.data.damaged_samples import ReportingSource, handle_damage
from bpt.data.image_source import ImageSource
from bpt.data.source import Sample
from bpt.graph.layer_spec import FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import (
    OLD_FIELDS,
    augment_of,
    new_size_of,
    preprocessing_of,
    shapes_of,
    transform_of,
    workers_of,
)

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

    field = FIELD
    old_fields = OLD_FIELDS
    reads = frozenset({"transform_param", "data_param"})  # of data_param prefetch, as in Caffe
    files = ((f"{FIELD}.source", FileKind.IMAGE_LIST), (f"{FIELD}.root_folder", FileKind.FOLDER), *DataLayer.files)
    reads_images = True

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> ReportingSource[Sample]:
        param = spec.param.image_data_param
        source = ImageSource(
            path,
            root_folder=param.root_folder,
            size=new_size_of(spec, FIELD),
            channels=_channels(spec),
            remedy="mend the file, or take its line out of the list",
        )
        return handle_damage(source, param.on_error == pb.ImageDataParameter.SKIP)

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: ReportingSource[Sample], share: Share, seed: int) -> ImageBatches:
        transform, augment = transform_of(spec, seed, augments=True), augment_of(spec, seed)
        sampler = cls.sampler_of(spec, [len(source)], seed)
        return ImageBatches(source, sampler, transform, share, workers_of(spec), augment)

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        param = spec.param.image_data_param
        for name in ("ignore_label", "label_type"):
            if param.HasField(name):
                raise spec.error(f"{name} is a setting of ImageSegData", FIELD, name)
        new_size_of(spec, FIELD)
        transform = transform_of(spec, augments=True)
        if transform.channels not in (None, _channels(spec)):
            word = "force_color" if transform.channels == 3 else "force_gray"
            raise spec.error(
                f"{word} contradicts is_color: {str(param.is_color).lower()}; ImageData goes by is_color",
                "transform_param",
            )
        source: ReportingSource[Sample] = cls.open(spec)
        source.reports = False
        with errors_at(spec, FIELD, "source", kinds=(DataError,)):
            first = source.read(0).image.shape
        return shapes_of(spec, batch_size, first, transform, augment_of(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        return preprocessing_of(spec, _channels(spec), new_size_of(spec, FIELD))


def _channels(spec: LayerSpec) -> int:
    return 3 if spec.param.image_data_param.is_color else 1
