"""MemoryData: samples from arrays that Python gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bpt.base.errors import UserError
from bpt.data.finite import FiniteWatch, all_finite
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.graph.share import Share, whole_batch
from bpt.nn.layers.base import LAYERS, DataLayer
from bpt.nn.layers.layer_text import notice
from bpt.nn.layers.prefetching import batch_size_of
from bpt.nn.pass_context import PassContext

FIELD = "memory_data_param"
Array = npt.NDArray[np.float32]


@LAYERS.register("MemoryData")
class MemoryData(DataLayer):
    """Tops: data (B, C, H, W) and labels (B, 1, 1, 1), from arrays that ``Net.set_input_arrays`` gives.

    They are handed out batch by batch, round and round, as they are: transform_param does nothing here, as in Caffe.
    A forward pass before there are any fails. Each new pair of arrays starts at its first row.
    """

    arity = Arity(bottoms=(0, 0), tops=(2, 2))

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.memory_data_param
        self._batch_size: int = param.batch_size
        self._row = (param.channels, param.height, param.width)
        self._arrays: tuple[Array, Array] | None = None
        self._position = self._start = 0
        if spec.param.HasField("transform_param"):
            notice(spec, "MemoryData hands arrays out as they are; transform_param does nothing", "transform_param")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        batch_size = batch_size_of(spec, FIELD)
        param = spec.param.memory_data_param
        for field in ("channels", "height", "width"):
            if getattr(param, field) < 1:
                raise spec.error(f"{FIELD} needs {field} of at least 1", FIELD, field)
        return LayerShapes(((batch_size, param.channels, param.height, param.width), (batch_size, 1, 1, 1)))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return "its arrays are given to one process, in Python"

    def set_arrays(self, data: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Hand out ``data`` (N, C, H, W) and ``labels`` (N,) or (N, 1, 1, 1) from now on, from row 0.

        Float32 arrays are not copied: what is written to them later is handed out, too.

        Raises:
            UserError: other shapes, or N is no multiple of the batch size.
        """
        values, numbers = np.asarray(data, np.float32), np.asarray(labels, np.float32)
        where = f'layer "{self.spec.name}"'
        if values.shape[1:] != self._row:
            raise UserError(f"{where} needs data of shape (N, {', '.join(map(str, self._row))}), given {values.shape}")
        rows = len(values)
        if not rows or rows % self._batch_size:
            raise UserError(f"{where} needs a multiple of its batch_size {self._batch_size} of rows, given {rows}")
        if numbers.shape not in ((rows,), (rows, 1, 1, 1)):
            raise UserError(f"{where} needs labels of shape ({rows},) or ({rows}, 1, 1, 1), given {numbers.shape}")
        for array, name in ((values, "data"), (numbers, "labels")):
            if not all_finite(array):
                watch = FiniteWatch()
                for row, part in enumerate(array):
                    watch.check(part, partial("{}: row {} of the {}".format, where, row, name))
        self._arrays = values, numbers.reshape(rows, 1, 1, 1)
        self._start = self._position

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        if self._arrays is None:
            raise self.spec.error(
                "has no data yet: give it arrays in Python, by net.set_input_arrays(data, labels)", "type"
            )
        rows = (self._position - self._start + np.arange(self._batch_size)) % self.epoch
        self._position += self._batch_size
        return tuple(torch.from_numpy(array[rows]) for array in self._arrays)

    @property
    def epoch(self) -> int:
        """Rows of the arrays; before there are any, those of a batch."""
        return len(self._arrays[0]) if self._arrays else self._batch_size

    @property
    def position(self) -> int:
        return self._position

    @position.setter
    def position(self, samples: int) -> None:
        self._position = samples

    @property
    def share(self) -> Share:
        return whole_batch(self._batch_size)

    @share.setter
    def share(self, share: Share) -> None:
        assert share == self.share, f"{self.spec.name}: see mixes_samples"

    def close(self) -> None:
        self._arrays = None
