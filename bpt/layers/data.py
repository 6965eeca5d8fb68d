"""Data: images and labels from an LMDB."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.context import PassContext
from bpt.data.batches import ImageBatches
from bpt.data.lmdb_file import LmdbSource
from bpt.data.sampler import Sampler
from bpt.data.shipped import Shipment, SpoolSource, spool_of
from bpt.data.source import a_few, size_of
from bpt.data.transform import Transform
from bpt.errors import FileError
from bpt.graph.spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.layers.base import LAYERS, DataLayer
from bpt.layers.layer_text import notice
from bpt.layers.prefetching import PrefetchingDataLayer, batch_size_of, prefetch_of, seed_of, source_of
from bpt.layers.transform_param import (
    augment_of,
    notice_old_fields,
    preprocessing_of,
    shapes_of,
    transform_of,
    workers_of,
)
from bpt.proto import bpt_pb2 as pb
from bpt.seeds import derive_seed

FIELD = "data_param"


@LAYERS.register("Data")
class Data(PrefetchingDataLayer):
    """Tops: the images (B, C, H, W) and, if named, the labels (B,) of an LMDB of Datum records.

    The records come in the order of their keys, round and round, also within a batch; with ``shuffle``
    (bpt's own field) in a new order every epoch. ``rand_skip`` skips a random number of records at the
    start, less than it. ``backend: LEVELDB``, Caffe's default, reads an LMDB too, if ``source`` is one. A Spool, with
    the records that rank 0 has sent, may stand for the LMDB. If the records are encoded, ``num_workers`` threads
    decode and transform them.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, 2))
    files = ((f"{FIELD}.source", FileKind.LMDB), *DataLayer.files)
    reads_images = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.data_param
        seed = seed_of(spec, context)
        skip = derive_seed(seed, "rand_skip") % param.rand_skip if param.rand_skip else 0
        transform, augment = transform_of(spec, seed, augments=True), augment_of(spec, seed)
        source = _open(spec, transform)
        sampler = Sampler([len(source)], shuffle=param.shuffle, seed=seed, skip=skip)
        workers = workers_of(spec, decoding=source.is_encoded() or augment is not None)
        batches = ImageBatches(source, sampler, transform, context.split(param.batch_size), workers, augment)
        super().__init__(spec, context, batches, param.prefetch)
        notice_old_fields(spec, FIELD)
        if param.backend == pb.DataParameter.LEVELDB:
            notice(spec, f'"{param.source}" is read as the LMDB that it is; set backend: LMDB', FIELD, "backend")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, FIELD)
        prefetch_of(spec)
        transform = transform_of(spec, augments=True)
        source = _open(spec, transform)
        try:
            first = source.read(0).image.shape
        finally:
            source.close()
        return shapes_of(spec, batch_size, first, transform, augment_of(spec))

    @classmethod
    def preprocessing(cls, spec: LayerSpec) -> pb.ImagePreprocessing:
        """Images were resized to the records' size when these were made, if a few have one."""
        source = _open(spec, transform_of(spec, augments=True))
        try:
            channels, size = size_of(source.read(index).image for index in a_few(len(source)))
        finally:
            source.close()
        return preprocessing_of(spec, channels, size)

    def shipment(self) -> Shipment:
        """The records of the data set, to send them to nodes that cannot reach it."""
        param = self.spec.param
        return Shipment(param.data_param.source, self._batches.sampler, param.transform_param.mean_file)


def shipment_of(layer: DataLayer) -> Shipment:
    """The records that a layer reads, for ``ship_data``.

    Raises:
        LayerError: it is no Data layer.
    """
    if not isinstance(layer, Data):
        raise layer.spec.error(
            f"ship_data sends the records of Data layers, not what {layer.spec.type} reads; write the data as an LMDB "
            "for a Data layer, or let all nodes reach them and set ship_data: false",
            "type",
        )
    return layer.shipment()


def _open(spec: LayerSpec, transform: Transform) -> LmdbSource | SpoolSource:
    param = spec.param.data_param
    channels = 3 if param.force_encoded_color else transform.channels
    path = source_of(spec, FIELD)
    if spool := spool_of(path):
        if (augment := augment_of(spec)) and augment.mixes:
            why = "mixup and cutmix take any record of the data set, and ship_data sends each node its own only"
            raise spec.error(why, "transform_param", "augment_param")
        return SpoolSource(spool, channels)
    try:
        return LmdbSource(path, random_access=param.shuffle, channels=channels)
    except FileError as error:
        raise spec.error(str(error), FIELD, "source") from None
