"""V0 layers (2013): ``layers { layer { ... } }``, all settings of all types in one message.

V0 nets have separate layers for padding; today, convolution and pooling layers pad themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bpt.base.errors import LayerError, did_you_mean
from bpt.base.origin import FieldPath, Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import field_by_name, is_message, is_repeated
from bpt.config.proto.upgrade.written import Note, Written

_Layer = Written[pb.V1LayerParameter]
_PADDED = ("conv", "pool")


def fold_padding(layers: Iterable[_Layer], inputs: Iterable[str]) -> list[_Layer]:
    """Return ``layers`` without "padding" layers, whose ``pad`` moves to the layers after them.

    ``inputs`` are the input blobs of the net. The remaining layers are changed in place.

    Raises:
        LayerError: as in Caffe, for a bottom that no layer has made yet; a padded blob that another layer than a
            convolution or pooling reads, or one beside other bottoms; padding with more than one bottom or top.
    """
    made_by: dict[str, _Layer | None] = dict.fromkeys(inputs)
    kept = []
    for layer in layers:
        for index, blob in enumerate(layer.message.bottom):
            if blob not in made_by:
                raise _error(layer, f'no layer before it makes "{blob}"{did_you_mean(blob, made_by)}', "bottom", index)
            source = made_by[blob]
            if source is not None and _is_padding(source):
                _take_over(layer, index, source)
        if not _is_padding(layer):
            kept.append(layer)
        made_by.update(dict.fromkeys(layer.message.top, layer))
    return kept


def _take_over(layer: _Layer, index: int, padding: _Layer) -> None:
    """Let ``layer`` pad its bottom itself."""
    own = layer.message.layer
    if own.type not in _PADDED:
        message = f'is of type "{own.type}", but only conv and pool can read what a padding layer pads'
        raise _error(layer, message, "bottom", index)
    if len(layer.message.bottom) != 1:
        raise _error(layer, "reads a padded blob, which must be its only bottom", "bottom")
    if len(padding.message.bottom) != 1 or len(padding.message.top) != 1:
        raise _error(padding, "a padding layer needs one bottom and one top", "bottom")
    own.pad = padding.message.layer.pad
    layer.message.bottom[index] = padding.message.bottom[0]
    place = padding.place("layer", "pad")
    if place is not None:
        layer.origins[("layer", "pad")] = place


def _is_padding(layer: _Layer) -> bool:
    return layer.message.layer.type == "padding"


def _error(layer: _Layer, message: str, *where: str | int) -> LayerError:
    return LayerError(layer.message.layer.name, message, layer.place(*where))


_Old = pb.V1LayerParameter
TYPES = {
    "accuracy": _Old.ACCURACY,
    "bnll": _Old.BNLL,
    "concat": _Old.CONCAT,
    "conv": _Old.CONVOLUTION,
    "data": _Old.DATA,
    "dropout": _Old.DROPOUT,
    "euclidean_loss": _Old.EUCLIDEAN_LOSS,
    "flatten": _Old.FLATTEN,
    "hdf5_data": _Old.HDF5_DATA,
    "hdf5_output": _Old.HDF5_OUTPUT,
    "im2col": _Old.IM2COL,
    "images": _Old.IMAGE_DATA,
    "infogain_loss": _Old.INFOGAIN_LOSS,
    "innerproduct": _Old.INNER_PRODUCT,
    "lrn": _Old.LRN,
    "multinomial_logistic_loss": _Old.MULTINOMIAL_LOGISTIC_LOSS,
    "pool": _Old.POOLING,
    "relu": _Old.RELU,
    "sigmoid": _Old.SIGMOID,
    "softmax": _Old.SOFTMAX,
    "softmax_loss": _Old.SOFTMAX_LOSS,
    "split": _Old.SPLIT,
    "tanh": _Old.TANH,
    "window_data": _Old.WINDOW_DATA,
}
"""The V1 type of each V0 type except "padding"."""

_CONV, _FULLY, _POOL, _LRN = "convolution_param", "inner_product_param", "pooling_param", "lrn_param"
_DATA, _HDF5, _IMAGES, _WINDOWS = "data_param", "hdf5_data_param", "image_data_param", "window_data_param"
_WITH_WEIGHTS = {"conv": _CONV, "innerproduct": _FULLY}
_WITH_KERNEL = {"conv": _CONV, "pool": _POOL}
_SOURCES = {"data": _DATA, "hdf5_data": _HDF5, "images": _IMAGES, "window_data": _WINDOWS}

SETTINGS: dict[str, tuple[dict[str, str], str]] = {
    "num_output": (_WITH_WEIGHTS, "num_output"),
    "biasterm": (_WITH_WEIGHTS, "bias_term"),
    "weight_filler": (_WITH_WEIGHTS, "weight_filler"),
    "bias_filler": (_WITH_WEIGHTS, "bias_filler"),
    "pad": (_WITH_KERNEL, "pad"),
    "kernelsize": (_WITH_KERNEL, "kernel_size"),
    "group": ({"conv": _CONV}, "group"),
    "stride": (_WITH_KERNEL, "stride"),
    "pool": ({"pool": _POOL}, "pool"),
    "dropout_ratio": ({"dropout": "dropout_param"}, "dropout_ratio"),
    "local_size": ({"lrn": _LRN}, "local_size"),
    "alpha": ({"lrn": _LRN}, "alpha"),
    "beta": ({"lrn": _LRN}, "beta"),
    "k": ({"lrn": _LRN}, "k"),
    "source": ({**_SOURCES, "infogain_loss": "infogain_loss_param"}, "source"),
    "batchsize": (_SOURCES, "batch_size"),
    "rand_skip": ({"data": _DATA, "images": _IMAGES}, "rand_skip"),
    "det_fg_threshold": ({"window_data": _WINDOWS}, "fg_threshold"),
    "det_bg_threshold": ({"window_data": _WINDOWS}, "bg_threshold"),
    "det_fg_fraction": ({"window_data": _WINDOWS}, "fg_fraction"),
    "det_context_pad": ({"window_data": _WINDOWS}, "context_pad"),
    "det_crop_mode": ({"window_data": _WINDOWS}, "crop_mode"),
    "new_height": ({"images": _IMAGES}, "new_height"),
    "new_width": ({"images": _IMAGES}, "new_width"),
    "shuffle_images": ({"images": _IMAGES}, "shuffle"),
    "concat_dim": ({"concat": "concat_param"}, "concat_dim"),
    "new_num": ({}, ""),
    "new_channels": ({}, ""),
}
"""The V1 message that holds a setting, for each type that has it, and its name there, by V0's name."""

# The settings of any type: data transformations, and fields that V1 layers hold directly.
_TRANSFORMATION = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_OF_LAYER = ("name", "blobs", "blobs_lr", "weight_decay")
_AROUND = ("bottom", "top", "layer")  # the fields that V0 layers have outside of their ``layer``


def upgrade(layers: Iterable[_Layer], inputs: Iterable[str]) -> tuple[list[_Layer], list[Note]]:
    """Return the layers in the V1 format, and a note on each setting that is ignored for its type.

    ``inputs`` are the input blobs of the net. The old layers are consumed.

    Raises:
        LayerError: the type is unknown, content that is not of the V0 format would be lost, or :func:`fold_padding`
            fails.
    """
    old = list(layers)
    for layer in old:
        _check(layer)
    notes: list[Note] = []
    return [_upgrade(layer, notes) for layer in fold_padding(old, inputs)], notes


def _check(layer: _Layer) -> None:
    """Refuse fields of V1, which Caffe drops from a net with a V0 layer."""
    for field, _ in layer.message.ListFields():
        if field.name not in _AROUND:
            raise LayerError(
                layer.message.layer.name or layer.message.name,
                f'"{field.name}" is of the V1 format, but the net has layers of the V0 format, '
                "layers { layer { … } }; write all of them in one",
                layer.place(field.name),
            )


def _upgrade(old: _Layer, notes: list[Note]) -> _Layer:
    settings = old.message.layer
    new = pb.V1LayerParameter(bottom=old.message.bottom, top=old.message.top)
    moves: dict[str, FieldPath] = {}
    for field, value in settings.ListFields():
        if field.name == "type":
            new.type = _type(old)
            moves["type"] = ("type",)
            continue
        target = _target(settings.type, field.name)
        if target is None:
            text = f"Unknown parameter {field.name} for layer type {settings.type}; it is ignored"
            notes.append(Note(f'layer "{settings.name}": {text}', old.place("layer", field.name), lossy=True))
            continue
        moves[field.name] = target
        _set(new, target, value, old, field.name)
    return Written(new, _moved(old.origins, moves), old.path)


def _type(layer: _Layer) -> Any:
    name = layer.message.layer.type
    if name not in TYPES:
        message = f'unknown layer type "{name}"{did_you_mean(name, TYPES)}'
        raise LayerError(layer.message.layer.name, message, layer.place("layer", "type"))
    return TYPES[name]


def _target(layer_type: str, field: str) -> FieldPath | None:
    """Return the place in V1 of ``field`` of a layer of type ``layer_type``; None if that type lacks it."""
    if field in _OF_LAYER:
        return (field,)
    if field in _TRANSFORMATION:
        return ("transform_param", _TRANSFORMATION[field])
    if field == "hdf5_output_param":
        return (field,) if layer_type == "hdf5_output" else None
    messages, name = SETTINGS[field]
    return (messages[layer_type], name) if layer_type in messages else None


def _set(new: pb.V1LayerParameter, target: FieldPath, value: Any, old: _Layer, name: str) -> None:
    """Set the field of ``new`` at ``target``."""
    holder: Any = new
    for step in target[:-1]:
        holder = getattr(holder, str(step))
    last = str(target[-1])
    field = field_by_name(holder, last)
    assert field is not None
    if is_repeated(field):  # a setting that was single in V0 has one entry
        many = is_message(field) or target[0] in _OF_LAYER
        getattr(holder, last).extend(value if many else [value])
    elif is_message(field):
        getattr(holder, last).CopyFrom(value)
    else:
        try:
            setattr(holder, last, value)
        except UnicodeError:  # also a ValueError; only binary files have such text
            raise
        except ValueError:  # new_height and new_width took negative numbers
            message = f"{name} must not be negative, found: {value}"
            raise LayerError(old.message.layer.name, message, old.place("layer", name)) from None


def _moved(origins: dict[FieldPath, Origin], moves: dict[str, FieldPath]) -> dict[FieldPath, Origin]:
    moved: dict[FieldPath, Origin] = {}
    for key, origin in origins.items():
        if key[:1] != ("layer",):
            moved[key] = origin
        elif len(key) > 1 and key[1] in moves:
            target = moves[str(key[1])]
            where = (*target, *key[2:])
            moved[where] = origin
            for length in range(1, len(target)):
                moved.setdefault(target[:length], origin)
    return moved
