"""The parts of a layer's text that do not depend on its type: notices, unread settings, first values of parameters."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from bpt.base.errors import BptError, LayerError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import blob_to_array, fits, is_legacy
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, Layer

log = logging.getLogger("bpt")


def notice(spec: LayerSpec, message: str, *path: str) -> None:
    """Log a warning about the field ``path`` of this layer."""
    log.warning("%s", spec.error(message, *path))


@contextmanager
def errors_at(spec: LayerSpec, *path: str | int, kinds: tuple[type[BptError], ...] = (UserError,)) -> Iterator[None]:
    """Raise errors of these ``kinds`` as errors of the layer's field ``path``."""
    try:
        yield
    except LayerError:
        raise
    except kinds as error:
        raise spec.error(str(error), *path) from None


_OF_ALL = frozenset({"parallel_param"})


@cache
def settings_of(type_name: str) -> str | None:
    """Return the field of LayerParameter that holds the settings of a layer type; None if it has none.

    The field is the one whose message is named after the type (InnerProduct → inner_product_param). Otherwise the layer
    class names it in ``settings``.
    """
    for field in pb.LayerParameter.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.name == f"{type_name}Parameter":
            return field.name
    return LAYERS[type_name].settings


def notice_unused_settings(layer: Layer) -> None:
    """Log which messages of settings in the layer's text its type does not read. Caffe ignores these, too."""
    spec = layer.spec
    known = _OF_ALL | layer.reads | {settings_of(spec.type)}
    for field, _ in spec.param.ListFields():
        if field.name.endswith("_param") and field.name not in known:
            notice(spec, f"{field.name} has no effect, since {spec.type} does not read it", field.name)


def blobs_in_text(spec: LayerSpec, shapes: Sequence[Shape]) -> list[Tensor]:
    """Return the values of ``blobs { … }`` for parameters of these shapes; an empty list if the text has none.

    These values replace those of the fillers.

    Raises:
        LayerError: the number of blobs, the shape of one or its number of values does not fit.
    """
    blobs = spec.param.blobs
    if blobs and len(blobs) != len(shapes):
        parameters = f"{len(shapes)} parameter blob{'s' * (len(shapes) != 1)}"
        raise spec.error(f"{len(blobs)} blobs in the text for {parameters}", "blobs")
    return [_values(spec, index, blob, shapes[index]) for index, blob in enumerate(blobs)]


def _values(spec: LayerSpec, index: int, blob: pb.BlobProto, shape: Shape) -> Tensor:
    with errors_at(spec, "blobs", index, kinds=(BptError,)):
        values = blob_to_array(blob)
    if not fits(values.shape, shape, is_legacy(blob)):
        raise spec.error(f"blob {index} has shape {values.shape}, the parameter {shape}", "blobs", index)
    return torch.from_numpy(values).reshape(shape)
