"""The question whether an MPI library accepts buffers in the memory of GPUs (is CUDA-aware), answered by itself."""

from __future__ import annotations

import ctypes

_KINDS = {"cuda": "CUDA", "rocm": "ROCm"}


def device_memory(extension: str, memory_kinds: str | None) -> str:
    """Return the kinds of device memory that a library accepts: ``CUDA``, ``ROCm`` or both, ``none``, or ``unknown``.

    Args:
        extension: the file of the module that is linked to the library.
        memory_kinds: the library's value of the key ``mpi_memory_alloc_kinds`` (MPI 4.1, section 12.4.3:
            ``system,mpi,cuda:device``), if it knows it. Open MPI 5 does not; it has a function for each kind
            (``mpi-ext.h``).
    """
    if memory_kinds is not None:
        given = {kind.split(":")[0].strip() for kind in memory_kinds.split(",")}
        return _named([kind for kind in _KINDS if kind in given])
    try:
        library = ctypes.CDLL(extension)
        return _named([kind for kind in _KINDS if getattr(library, f"MPIX_Query_{kind}_support")()])
    except (OSError, AttributeError):
        return "unknown"


def _named(kinds: list[str]) -> str:
    return ", ".join(_KINDS[kind] for kind in kinds) or "none"
