"""From a data layer's text to its Transform, with the fields of older texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bpt.data.transform import Transform
from bpt.errors import UserError
from bpt.graph.spec import LayerSpec
from bpt.proto import bpt_pb2 as pb

_OLD_FIELDS = ("scale", "mean_file", "crop_size", "mirror")


def transform_of(spec: LayerSpec, field: str, seed: int = 0) -> Transform:
    """The Transform that ``transform_param`` describes; a LayerError if it cannot be made.

    Old texts have its fields in ``field`` ("data_param"); they count as in Caffe's upgrade of old nets.
    """
    param = pb.TransformationParameter()
    param.CopyFrom(spec.param.transform_param)
    old: Any = getattr(spec.param, field)
    for name in old_transform_fields(spec, field):
        setattr(param, name, getattr(old, name))
    try:
        return Transform(param, spec.param.phase, seed)
    except UserError as error:
        raise spec.error(str(error), "transform_param") from None


def old_transform_fields(spec: LayerSpec, field: str) -> Iterator[str]:
    """The fields set in ``field`` whose place is ``transform_param``."""
    return (name for name in _OLD_FIELDS if getattr(spec.param, field).HasField(name))
