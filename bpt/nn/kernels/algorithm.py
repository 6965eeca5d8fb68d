"""The algorithms by which a layer's kernels can run, and which of them a layer uses.

All algorithms of a kernel give the same numbers up to rounding. Which one is the fastest depends on the processor, the
number of threads and the shapes. ``bpt.engine.algorithm_trials`` measures it. A layer without measurements runs by
TORCH, which is what torch, or a rule of the kernel, chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType


class KernelRole(IntEnum):
    """The three computations of a layer with weights. Snapshots contain the numbers."""

    FORWARD = 0
    BY_DATA = 1  # the diff of the bottom
    BY_WEIGHTS = 2  # the gradients of weights and bias

    @property
    def in_words(self) -> str:
        """The role as in a sentence."""
        return self.name.lower().replace("_", " ")


class Algorithm(IntEnum):
    """An algorithm of a kernel. Snapshots contain the numbers.

    Attributes:
        TORCH: what torch, or a rule of the kernel, chooses.
        OTHER_FORMAT: the same by tensors in the other memory format, to and from which blobs are copied.
        PATCHES: the product of the patches under the window and the filters, by the BLAS of torch.
        PATCHES_ONEDNN: the same product by oneDNN.
        FLIPPED: the diff of the bottom by a forward convolution with the filters turned around.
        ONEDNN, BLAS: a product of matrices by this library.
    """

    TORCH = 0
    OTHER_FORMAT = 1
    PATCHES = 2
    PATCHES_ONEDNN = 3
    FLIPPED = 4
    ONEDNN = 5
    BLAS = 6


Algorithms = Mapping[KernelRole, Algorithm]
"""The algorithms of a layer; roles that are missing run by TORCH."""

BY_TORCH: Algorithms = MappingProxyType({})

Kernels = Mapping[KernelRole, Mapping[Algorithm, Callable[[], object]]]
"""The kernels of a layer on given blobs, by role and algorithm; each call computes once."""
