"""HDF5Data: rows of HDF5 datasets, of any shape."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.data.batches import RowBatches
from bpt.data.hdf5_file import Hdf5Source
from bpt.graph.layer_spec import Arity, FileKind, LayerSpec, Shape
from bpt.graph.share import Share
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer

FIELD = "hdf5_data_param"
PREFETCH = 4  # the text has no field for it; as many as DataParameter's default


@LAYERS.register("HDF5Data")
class HDF5Data(PrefetchingDataLayer):
    """Tops (B, …): rows of the datasets called like them, in the HDF5 files that ``source`` lists.

    The rows come in order, file after file, round and round, also within a batch. ``shuffle`` permutes
    the files, and the rows within each, anew every epoch.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, None))
    field = FIELD
    files = ((f"{FIELD}.source", FileKind.HDF5_LIST), *DataLayer.files)

    @classmethod
    def make_source(cls, spec: LayerSpec, path: str) -> Hdf5Source:
        return Hdf5Source(path, spec.tops, spec.param.hdf5_data_param.allow_external)

    @classmethod
    def make_batches(cls, spec: LayerSpec, source: Hdf5Source, share: Share, seed: int) -> RowBatches:
        return RowBatches(source, cls.sampler_of(spec, source.file_sizes, seed), share)

    @classmethod
    def infer_tops(cls, spec: LayerSpec, batch_size: int) -> Sequence[Shape]:
        if spec.param.HasField("transform_param"):
            raise spec.error("HDF5Data does not transform its data; take transform_param out", "transform_param")
        return [(batch_size, *row) for row in cls.open(spec).row_shapes]

    @classmethod
    def prefetch_of(cls, spec: LayerSpec) -> int:
        return PREFETCH
