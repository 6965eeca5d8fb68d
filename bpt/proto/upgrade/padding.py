"""V0 nets pad by layers of their own; today, convolution and pooling layers do so themselves."""

from __future__ import annotations

from collections.abc import Iterable

from bpt.errors import LayerError, did_you_mean
from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade.written import Written

_Layer = Written[pb.V1LayerParameter]
_PADDED = ("conv", "pool")


def fold(layers: Iterable[_Layer], inputs: Iterable[str]) -> list[_Layer]:
    """``layers`` without those of type "padding", whose ``pad`` goes to the layers that read what they pad.

    ``inputs`` are the blobs that the net is given. The layers that stay are changed in place.

    Raises LayerError as Caffe does: a bottom that nothing has made yet; a padded blob that another layer than a
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
    """Lets ``layer`` pad its bottom itself."""
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
