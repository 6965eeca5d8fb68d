"""Data: images and labels from an LMDB."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.batches import ImageBatches
from bpt.data.lmdb_file import LmdbSource
from bpt.data.shipped import RecordCacheSource, RecordStream, record_cache_of
from bpt.data.source import a_few, size_of
from bpt.graph.layer_spec import FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import notice
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.layers.transform_param import (
    OLD_FIELDS,
    augment_of,
    channels_of,
    preprocessing_of,
    shapes_of,
    transform_of,
    workers_of,
)
from bpt.nn.pass_context import PassContext

FIELD = "data_param"


@LAYERS.register("Data")
class Data(PrefetchingDataLayer):
    """Tops: the images (B, C, H, W) and, if named, the labels (B,) of an LMDB of Datum records.

    The records come in the order of their keys, round and round, also within a batch; with ``shuffle``
    (bpt's own field) in a new order every epoch. ``rand_skip`` skips a random number of records at the
    start, less than it. ``backend: LEVELDB``, Caffe's default, reads an LMDB too, if ``source`` is one.
    ``source`` may also name a RecordCache, which has the records that rank 0 has sent. If the records are encoded,
    ``num_workers`` threads decode and transform them.
    """

    field = FIELD
    old_fields = OLD_FIELDS
    files = ((f"{FIELD}.source", FileKind.LMDB), *DataLayer.files)
    reads_images = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.data_param
        if param.backend == pb.DataParameter.LEVELDB:
            notice(spec, f'"{param.source}" is read as the LMDB that it is; set backend: LMDB', FIELD, "backend")

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> LmdbSource | RecordCacheSource:
        param = spec.param.data_param
        channels = 3 if param.force_encoded_color else channels_of(spec)
        cache = record_cache_of(path)
        if not cache:
            return LmdbSource(path, random_access=param.shuffle, channels=channels)
        if (augment := augment_of(spec)) and augment.mixes:
            why = "mixup and cutmix take any record of the data set, and ship_data sends each node its own only"
            raise spec.error(why, "transform_param", "augment_param")
        return RecordCacheSource(cache, channels)

    @classmethod
    def make_batches(
        cls, spec: LayerSpec, source: LmdbSource | RecordCacheSource, share: Share, seed: int
    ) -> ImageBatches:
        transform, augment = transform_of(spec, seed, augments=True), augment_of(spec, seed)
        workers = workers_of(spec, decoding=source.is_encoded() or augment is not None)
        return ImageBatches(source, cls.sampler_of(spec, [len(source)], seed), transform, share, workers, augment)

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        transform = transform_of(spec, augments=True)
        with closing(cls.open(spec)) as source:
            first = source.read(0).image.shape
        return shapes_of(spec, batch_size, first, transform, augment_of(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        """Images were resized to the records' size when these were made, if a few have one."""
        with closing(cls.open(spec)) as source:
            channels, size = size_of(source.read(index).image for index in a_few(len(source)))
        return preprocessing_of(spec, channels, size)

    def record_stream(self) -> RecordStream:
        """Return the records of the data set, to send them to nodes that cannot reach it."""
        param = self.spec.param
        return RecordStream(param.data_param.source, self._batches.sampler, param.transform_param.mean_file)


def record_stream_of(layer: DataLayer) -> RecordStream:
    """Return the records that a layer reads, for ``ship_data``.

    Raises:
        LayerError: it is no Data layer.
    """
    if not isinstance(layer, Data):
        raise layer.spec.error(
            f"ship_data sends the records of Data layers, not what {layer.spec.type} reads; write the data as an LMDB "
            "for a Data layer, or let all nodes reach them and set ship_data: false",
            "type",
        )
    return layer.record_stream()
