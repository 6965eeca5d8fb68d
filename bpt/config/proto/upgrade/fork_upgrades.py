"""Upgrades of settings that Caffe's forks write differently from BVLC's Caffe.

``ceil_mode`` and ``torch_pooling`` of Pooling become ``round_mode``; ``hole`` of DeepLab's convolutions becomes
``dilation``; ``relu: true`` of Intel's Convolution and BatchNorm becomes a ReLU layer after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bpt.base.errors import LayerError
from bpt.base.origin import FieldPath, Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.upgrade.written import Note, Written, insert_elements, remove_elements

_Layer = Written[pb.LayerParameter]


def upgrade(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath = ()
) -> list[Note]:
    """Upgrade the layers of ``net`` and ``origins`` in place; return a note for each kind of change.

    Raises:
        LayerError: a layer has a setting in both forms.
    """
    if not any(map(_is_concerned, net.layer)):
        return []
    layers = remove_elements(net.layer, origins, (*where, "layer"), path)
    notes: dict[str, Note] = {}
    made: list[_Layer] = []
    for layer in layers:
        for words, place in (*_round_mode(layer), *_dilation(layer)):
            notes.setdefault(words, Note(words, place))
        made.append(layer)
        for behind, words, place in _relus(layer):
            notes.setdefault(words, Note(words, place))
            made.append(behind)
    messages = [layer.message for layer in made]
    del net.layer[:]
    net.layer.extend(messages)
    insert_elements(made, origins, (*where, "layer"))
    return list(notes.values())


_POOLING, _CONVOLUTION, _NORM = "pooling_param", "convolution_param", "batch_norm_param"
_ROUND = ("ceil_mode", "torch_pooling")
_HOLES = ("hole", "hole_h", "hole_w")


def _is_concerned(layer: pb.LayerParameter) -> bool:
    pooling, convolution = layer.pooling_param, layer.convolution_param
    return (
        any(map(pooling.HasField, _ROUND))
        or any(map(convolution.HasField, _HOLES))
        or convolution.relu
        or layer.batch_norm_param.relu
    )


Change = tuple[str, Origin | None]
"""The change in words, and its place."""


def _round_mode(layer: _Layer) -> Iterator[Change]:
    param = layer.message.pooling_param
    for field in _ROUND:
        if param.HasField(field):
            place = layer.place(_POOLING, field)
            if param.HasField("round_mode"):
                raise LayerError(layer.message.name, f"give round_mode, or {field}, its other form; not both", place)
            up = param.ceil_mode if field == "ceil_mode" else not param.torch_pooling
            param.ClearField(field)
            param.round_mode = pb.PoolingParameter.CEIL if up else pb.PoolingParameter.FLOOR
            _moved(layer, (_POOLING, field), (_POOLING, "round_mode"))
            yield f"{field} is read as round_mode", place


def _dilation(layer: _Layer) -> Iterator[Change]:
    param = layer.message.convolution_param
    given = [field for field in _HOLES if param.HasField(field)]
    if not given:
        return
    place = layer.place(_CONVOLUTION, given[0])
    if param.dilation:
        raise LayerError(layer.message.name, f"give dilation, or {given[0]}, its other form; not both", place)
    sides = [param.hole_h or param.hole, param.hole_w or param.hole]
    param.dilation.extend(sides[:1] if sides[0] == sides[1] else sides)
    for field in given:
        param.ClearField(field)
    _moved(layer, (_CONVOLUTION, given[0]), (_CONVOLUTION, "dilation"))
    yield f"{given[0]} is read as dilation", place


def _relus(layer: _Layer) -> Iterator[tuple[_Layer, str, Origin | None]]:
    """Yield an in-place ReLU for each top of a layer with ``relu: true``, in the same phases as the layer."""
    message = layer.message
    field = _CONVOLUTION if message.convolution_param.relu else _NORM
    param = getattr(message, field)
    if not param.relu:
        return
    slope = message.convolution_param.negative_slope if field == _CONVOLUTION else 0.0
    place = layer.place(field, "relu")
    param.ClearField("relu")
    if field == _CONVOLUTION:
        param.ClearField("negative_slope")
    for number, top in enumerate(message.top):
        name = f"{message.name}_relu" if len(message.top) == 1 else f"{message.name}_relu_{number}"
        behind = pb.LayerParameter(
            name=name, type="ReLU", bottom=[top], top=[top], include=message.include, exclude=message.exclude
        )
        if slope:
            behind.relu_param.negative_slope = slope
        yield Written(behind, {} if place is None else {(): place}, layer.path), "relu: true is read as a ReLU", place


def _moved(layer: _Layer, old: FieldPath, new: FieldPath) -> None:
    place = layer.origins.pop(old, None)
    if place is not None:
        layer.origins[new] = place
