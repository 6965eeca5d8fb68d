"""Which settings are a layer type's own, and those that stand in a layer of another type."""

from __future__ import annotations

from functools import cache

from bpt.layers.base import LAYERS, Layer
from bpt.layers.notice import notice
from bpt.proto import bpt_pb2 as pb

_OF_ALL = frozenset({"parallel_param"})


@cache
def settings_of(type_name: str) -> str | None:
    """The field of LayerParameter that holds the settings of a layer type; None if it has none.

    That is the one whose message is named after the type (InnerProduct → inner_product_param), or that its class names.
    """
    for field in pb.LayerParameter.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.name == f"{type_name}Parameter":
            return field.name
    return LAYERS[type_name].settings


def notice_unused_settings(layer: Layer) -> None:
    """Log which messages of settings the layer's text has that its type does not read, as in Caffe."""
    spec = layer.spec
    known = _OF_ALL | layer.reads | {settings_of(spec.type)}
    for field, _ in spec.param.ListFields():
        if field.name.endswith("_param") and field.name not in known:
            notice(spec, f"{field.name} has no effect, since {spec.type} does not read it", field.name)
