"""How images are transformed, which V1 nets say in data_param, image_data_param and window_data_param."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade.written import Written

_PARAMS = {
    pb.V1LayerParameter.DATA: "data_param",
    pb.V1LayerParameter.IMAGE_DATA: "image_data_param",
    pb.V1LayerParameter.WINDOW_DATA: "window_data_param",
}
_FIELDS = ("scale", "mean_file", "crop_size", "mirror")


def upgrade(layers: Iterable[Written[pb.V1LayerParameter]]) -> bool:
    """Moves the old fields to ``transform_param``, where they replace what is there; whether there were any."""
    found = False
    for layer in layers:
        name = _PARAMS.get(layer.message.type)
        if name is not None:
            found |= _move(layer, name)
    return found


def _move(layer: Written[pb.V1LayerParameter], name: str) -> bool:
    old: Any = getattr(layer.message, name)
    fields = [field for field in _FIELDS if old.HasField(field)]
    for field in fields:
        setattr(layer.message.transform_param, field, getattr(old, field))
        old.ClearField(field)
        origin = layer.origins.pop((name, field), None)
        if origin is not None:
            layer.origins[("transform_param", field)] = origin
            layer.origins.setdefault(("transform_param",), origin)
    return bool(fields)
