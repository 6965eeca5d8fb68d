"""Make the LayerSpecs of a NetParameter, from which the graph is built."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.base.origin import Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import FieldPath, LayerSpec


def layer_specs(net: pb.NetParameter, origins: Mapping[FieldPath, Origin] | None = None) -> tuple[LayerSpec, ...]:
    """Return one LayerSpec for each ``layer`` of ``net``; ``origins`` comes from the parser of its text."""
    by_layer: dict[int, dict[FieldPath, Origin]] = {}
    for path, origin in (origins or {}).items():
        match path:
            case ("layer", int(index), *rest):
                by_layer.setdefault(index, {})[tuple(rest)] = origin
    return tuple(LayerSpec(param, by_layer.get(index, {})) for index, param in enumerate(net.layer))
