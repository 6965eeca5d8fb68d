"""Precision: in which numbers a run computes, sends and keeps its weights. Who makes a tensor or counts bytes asks it.

Not of a run's precision are: what is counted (labels and places are whole numbers), sums that need more digits than
what they sum (``double()`` where it stands), Caffe's files, which hold float32, and what is drawn at random, which is
float32 too, so that a run begins alike in any precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb


@dataclass(frozen=True)
class Precision:
    """The types of a run's numbers; the ``itemsize`` of each is its bytes an element.

    Attributes:
        name: in the solver's text.
        compute: of blobs and their diffs, on a device and between the stages and shards of a net.
        wire: of weights and gradients on their way between ranks that go in step. A server and its workers send
            weights as they are kept.
        master: of weights, gradients and moments, where they are kept and updated.
        half: what stands for ``compute`` in the layers that ``bpt.graph.autocast`` names; ``None``: in none.
        measures: whether each layer that could be among these is only if it is faster so.
        named: whether only layers whose own text says FLOAT16 are among these.
    """

    name: str
    compute: torch.dtype
    wire: torch.dtype
    master: torch.dtype
    half: torch.dtype | None = None
    measures: bool = False
    named: bool = False

    def blob_type(self, half: bool) -> torch.dtype:
        """Return the type of a blob that is in half precision, or not."""
        return self.half if half and self.half is not None else self.compute


FLOAT32 = Precision("FLOAT32", torch.float32, torch.float32, torch.float32)
FLOAT64 = Precision("FLOAT64", torch.float64, torch.float64, torch.float64)
BFLOAT16 = Precision("BFLOAT16", torch.float32, torch.float32, torch.float32, torch.bfloat16)
FLOAT16 = Precision("FLOAT16", torch.float32, torch.float32, torch.float32, torch.float16)
AUTO = Precision("AUTO", torch.float32, torch.float32, torch.float32, torch.bfloat16, measures=True)
HALF = (torch.bfloat16, torch.float16)
PRECISIONS = {precision.name: precision for precision in (FLOAT32, FLOAT64, BFLOAT16, FLOAT16, AUTO)}


def precision_of(param: pb.SolverParameter) -> Precision | None:
    """Return the precision that the solver's text asks for; ``None`` leaves it to the net's text."""
    return PRECISIONS[pb.Precision.Name.Name(param.precision)] if param.HasField("precision") else None


def precision_of_net(param: pb.NetParameter) -> Precision:
    """Return the precision of a net's text, in the fields of NVIDIA's Caffe; FLOAT32 without such fields."""
    if param.default_forward_type == pb.DOUBLE:
        return FLOAT64
    if param.default_forward_type == pb.FLOAT16:
        return FLOAT16
    some = any(layer.HasField("forward_type") and layer.forward_type == pb.FLOAT16 for layer in param.layer)
    return replace(FLOAT16, named=True) if some else FLOAT32


def narrowed(values: Tensor, like: Tensor) -> Tensor:
    """Return ``values``, a layer's own, in half precision where the blob ``like`` is."""
    return values.to(like.dtype) if like.dtype in HALF else values


def array_type(dtype: torch.dtype) -> np.dtype[np.generic]:
    """Return the NumPy type."""
    return torch.empty(0, dtype=dtype).numpy().dtype


def array_of(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return a tensor on the host as an array; for bfloat16, which NumPy lacks, it has the bits."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
