"""Precision: in which numbers a run computes, sends and keeps its weights. Who makes a tensor or counts bytes asks it.

Not of a run's precision are: what is counted (labels and places are whole numbers), sums that need more digits than
what they sum (``double()`` where it stands), Caffe's files, which hold float32, and what is drawn at random, which is
float32 too, so that a run begins alike in any precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bpt.proto import bpt_pb2 as pb


@dataclass(frozen=True)
class Precision:
    """Types of numbers; ``itemsize`` of each is its bytes an element.

    Attributes:
        name: in the solver's text.
        compute: of blobs and their diffs, on a device and between the stages and shards of a net.
        wire: of weights and gradients on their way between ranks that go in step. A server and its workers send
            weights as they are kept.
        master: of weights, gradients and moments, where they are kept and updated.
    """

    name: str
    compute: torch.dtype
    wire: torch.dtype
    master: torch.dtype


FLOAT32 = Precision("FLOAT32", torch.float32, torch.float32, torch.float32)
FLOAT64 = Precision("FLOAT64", torch.float64, torch.float64, torch.float64)
_ALL = {precision.name: precision for precision in (FLOAT32, FLOAT64)}


def precision_of(param: pb.SolverParameter) -> Precision:
    """What the solver's text asks for."""
    return _ALL[pb.SolverParameter.Precision.Name(param.precision)]


def array_type(dtype: torch.dtype) -> np.dtype[np.generic]:
    """The same in numpy's words."""
    return torch.empty(0, dtype=dtype).numpy().dtype
