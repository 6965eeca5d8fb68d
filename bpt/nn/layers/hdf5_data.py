"""HDF5Data: rows of HDF5 datasets, of any shape."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.base.errors import FileError
from bpt.data.batches import RowBatches
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.sampler import Sampler
from bpt.graph.layer_spec import Arity, FileKind, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.prefetching import PrefetchingDataLayer, batch_size_of, seed_of, source_of
from bpt.nn.pass_context import PassContext

FIELD = "hdf5_data_param"
PREFETCH = 4  # the text has no field for it; as many as DataParameter's default


@LAYERS.register("HDF5Data")
class HDF5Data(PrefetchingDataLayer):
    """Tops (B, …): rows of the datasets called like them, in the HDF5 files that ``source`` lists.

    The rows come in order, file after file, round and round, also within a batch. ``shuffle`` permutes
    the files, and the rows within each, anew every epoch.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, None))
    files = ((f"{FIELD}.source", FileKind.HDF5_LIST), *DataLayer.files)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        param = spec.param.hdf5_data_param
        source = _open(spec)
        sampler = Sampler(source.file_sizes, shuffle=param.shuffle, seed=seed_of(spec, context))
        super().__init__(spec, context, RowBatches(source, sampler, context.split(param.batch_size)), PREFETCH)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, FIELD)
        if spec.param.HasField("transform_param"):
            raise spec.error("HDF5Data does not transform its data; take transform_param out", "transform_param")
        return LayerShapes(tuple((batch_size, *row) for row in _open(spec).row_shapes))


def _open(spec: LayerSpec) -> Hdf5Source:
    try:
        return Hdf5Source(source_of(spec, FIELD), spec.tops, spec.param.hdf5_data_param.allow_external)
    except FileError as error:
        raise spec.error(str(error), FIELD, "source") from None
