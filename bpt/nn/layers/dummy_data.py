"""DummyData: tops made by fillers, for tests and timing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.graph.part import BlobSlice
from bpt.graph.share import ShardRotation, Share
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.fillers import fill
from bpt.nn.layers.layer_text import errors_at
from bpt.nn.pass_context import PassContext

T = TypeVar("T")
OLD_DIMS = ("num", "channels", "height", "width")


@LAYERS.register("DummyData")
class DummyData(Layer):
    """Tops of the given shapes, filled by ``data_filler`` (default: constant 0).

    A ``shape`` (or its old form ``num``, ``channels``, ``height`` and ``width``) and a ``data_filler`` are
    given once for all tops or once a top. Constant tops are filled once, others in each forward pass. With many ranks
    each makes its own rows (axis 0) of the whole batch's.
    """

    arity = Arity(bottoms=(0, 0), tops=(1, None))
    computes = False
    family = Family.DATA

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.dummy_data_param
        if param.data_filler:
            _check_count(spec, "data_filler")
        old = [dim for dim in OLD_DIMS if getattr(param, dim)]
        if not old:
            _check_count(spec, "shape")
            return LayerShapes(tuple(tuple(_for_top(param.shape, top).dim) for top in range(len(spec.tops))))
        if param.shape:
            raise spec.error(
                f"give shape or {', '.join(OLD_DIMS)} (its old form), not both", "dummy_data_param", old[0]
            )
        for dim in OLD_DIMS:
            _check_count(spec, dim)
        return LayerShapes(
            tuple(tuple(_for_top(getattr(param, dim), top) for dim in OLD_DIMS) for top in range(len(spec.tops)))
        )

    @classmethod
    def gives_constants(cls, spec: LayerSpec) -> bool:
        return all(filler.type == "constant" for filler in spec.param.dummy_data_param.data_filler)

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self._shapes = self.infer(spec, ()).tops
        tops = range(len(spec.tops))
        for top in tops:
            values = self._draw(top)  # a filler that cannot fill its top is found here, before the run
            self.register_buffer(f"top{top}", values if self._is_constant(top) else None, persistent=False)

    @property
    def own_rotation(self) -> ShardRotation | None:
        # Data layers behind this one are not rotated either, since what it draws belongs to places.
        constant = all(map(self._is_constant, range(len(self.spec.tops))))
        return None if constant else ShardRotation(batch=1, epoch=0)

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(self._top, range(len(self.spec.tops))))

    def _top(self, top: int) -> Tensor:
        if not self._is_constant(top):
            return self._draw(top)
        values: Tensor = getattr(self, f"top{top}")
        rows = self._share(top).count if values.dim() else 0
        if values.dim() and len(values) != rows:  # the balance has changed
            values = values.new_full((rows, *values.shape[1:]), self._filler(top).value)
            setattr(self, f"top{top}", values)
        return values

    def _share(self, top: int) -> Share:
        """Return this rank's rows of a top that has any."""
        return self.context.split(self._shapes[top][0])

    def _filler(self, top: int) -> pb.FillerParameter:
        given = self.spec.param.dummy_data_param.data_filler
        return _for_top(given, top) if given else pb.FillerParameter()

    def _is_constant(self, top: int) -> bool:
        return self._filler(top).type == "constant"

    def _draw(self, top: int) -> Tensor:
        shape = self._shapes[top]
        if not shape:
            return self._filled(top, ())
        share = self._share(top)
        shift = share.shift(self.context.rotation) if self.training else 0
        whole = (share.total, *shape[1:])
        parts = [self._filled(top, whole, BlobSlice(0, *run)) for run in share.runs(shift) or [(0, 0)]]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _filled(self, top: int, whole: Shape, rows: BlobSlice | None = None) -> Tensor:
        """``rows`` of the top of shape ``whole``."""
        values = torch.empty(rows.shape(whole) if rows else whole, dtype=torch.float32)
        generator = self.context.pass_generator("dummy_data", self.spec.name, top)
        with errors_at(self.spec, "dummy_data_param", "data_filler", top):
            fill(values, self._filler(top), generator, whole, rows)
        return values


def _for_top(given: Sequence[T], top: int) -> T:
    """Return the entry for ``top`` of a list that has one for all tops or one for each."""
    return given[0] if len(given) == 1 else given[top]


def _check_count(spec: LayerSpec, field: str) -> None:
    given, tops = len(getattr(spec.param.dummy_data_param, field)), len(spec.tops)
    if given not in (1, tops):
        raise spec.error(
            f"needs one {field} for all tops, or one a top ({tops}), not {given}", "dummy_data_param", field
        )
