"""Settings that stand in a layer of another type."""

from __future__ import annotations

from bpt.layers.base import Layer
from bpt.layers.notice import notice
from bpt.proto.fields import settings_of

_OF_ALL = frozenset({"parallel_param"})


def notice_unused_settings(layer: Layer) -> None:
    """Log which messages of settings the layer's text has that its type does not read, as in Caffe."""
    spec = layer.spec
    known = _OF_ALL | layer.reads | {settings_of(spec.type)}
    for field, _ in spec.param.ListFields():
        if field.name.endswith("_param") and field.name not in known:
            notice(spec, f"{field.name} has no effect, since {spec.type} does not read it", field.name)
