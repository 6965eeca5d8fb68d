"""From a data layer's text to its Transform, with the fields of older texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bpt.data.transform import Transform
from bpt.data.workers import ALONE, Workers, how_many
from bpt.errors import UserError
from bpt.graph.spec import LayerSpec
from bpt.layers.prefetching import notice
from bpt.proto import bpt_pb2 as pb

MOST_WORKERS = 256
_OLD_FIELDS = ("scale", "mean_file", "crop_size", "mirror")


def transform_of(spec: LayerSpec, field: str, seed: int = 0) -> Transform:
    """The Transform that ``transform_param`` describes; a LayerError if it cannot be made.

    Old texts have its fields in ``field`` ("data_param"); they count as in Caffe's upgrade of old nets.
    """
    try:
        return Transform(merged_transform_param(spec, field), spec.param.phase, seed)
    except UserError as error:
        raise spec.error(str(error), "transform_param") from None


def merged_transform_param(spec: LayerSpec, field: str) -> pb.TransformationParameter:
    """``transform_param`` with what old texts have in ``field``; a LayerError if it asks for too many workers."""
    param = pb.TransformationParameter()
    param.CopyFrom(spec.param.transform_param)
    old: Any = getattr(spec.param, field)
    for name in old_transform_fields(spec, field):
        setattr(param, name, getattr(old, name))
    if param.num_workers > MOST_WORKERS:
        raise spec.error(f"num_workers can be at most {MOST_WORKERS}", "transform_param", "num_workers")
    return param


def old_transform_fields(spec: LayerSpec, field: str) -> Iterator[str]:
    """The fields set in ``field`` whose place is ``transform_param``."""
    return (name for name in _OLD_FIELDS if getattr(spec.param, field).HasField(name))


def notice_old_transform_fields(spec: LayerSpec, field: str) -> None:
    """Log which fields of ``field`` belong in ``transform_param``."""
    for name in old_transform_fields(spec, field):
        notice(spec, f"{field}.{name} is out of date; write it in transform_param", field, name)


def workers_of(spec: LayerSpec, *, decoding: bool = True) -> Workers:
    """The workers that ``transform_param`` asks for; ``ALONE`` if nothing has to be decoded, as one is quicker then."""
    wanted = spec.param.transform_param.num_workers
    if decoding:
        return Workers(how_many(wanted))
    if wanted > 1:
        reason = "its records are not encoded, and one thread reads them quickest"
        notice(spec, f"num_workers: {wanted} has no effect: {reason}", "transform_param", "num_workers")
    return ALONE
