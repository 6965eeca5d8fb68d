"""Parameters whose first values stand in the net's text, as ``blobs`` of a layer (Caffe: the constructor of Layer)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.errors import BptError
from bpt.graph.spec import LayerSpec, Shape
from bpt.proto import bpt_pb2 as pb
from bpt.proto.blobs import blob_to_array, fits, is_legacy


def blobs_in_text(spec: LayerSpec, shapes: Sequence[Shape]) -> list[Tensor]:
    """The values of ``blobs { … }`` for parameters of these shapes, which take the place of fillers; none if not given.

    Raises:
        LayerError: there are not as many, or one has another shape or not as many numbers as that takes.
    """
    blobs = spec.param.blobs
    if blobs and len(blobs) != len(shapes):
        parameters = f"{len(shapes)} parameter blob{'s' * (len(shapes) != 1)}"
        raise spec.error(f"{len(blobs)} blobs in the text for {parameters}", "blobs")
    return [_values(spec, index, blob, shapes[index]) for index, blob in enumerate(blobs)]


def _values(spec: LayerSpec, index: int, blob: pb.BlobProto, shape: Shape) -> Tensor:
    try:
        values = blob_to_array(blob)
    except BptError as error:
        raise spec.error(str(error), "blobs", index) from None
    if not fits(values.shape, shape, is_legacy(blob)):
        raise spec.error(f"blob {index} has shape {values.shape}, the parameter {shape}", "blobs", index)
    return torch.from_numpy(values).reshape(shape)
