"""What a library says of the memory of GPUs, by the key of MPI 4.1 or by Open MPI's functions."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from bpt.system.comm.device_memory import device_memory


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [("system,mpi", "none"), ("system, mpi, cuda:device", "CUDA"), ("rocm,system,cuda", "CUDA, ROCm")],
)
def test_by_the_key_of_mpi_4_1(kinds: str, expected: str) -> None:
    assert device_memory("no such library", kinds) == expected


@pytest.mark.parametrize(("cuda", "rocm", "expected"), [(0, 0, "none"), (1, 0, "CUDA"), (0, 1, "ROCm")])
def test_by_functions(monkeypatch: pytest.MonkeyPatch, cuda: int, rocm: int, expected: str) -> None:
    library = SimpleNamespace(MPIX_Query_cuda_support=lambda: cuda, MPIX_Query_rocm_support=lambda: rocm)
    monkeypatch.setattr(ctypes, "CDLL", {"MPI.so": library}.__getitem__)
    assert device_memory("MPI.so", None) == expected


def test_a_library_that_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_memory("no such library", None) == "unknown"
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert device_memory("MPI.so", None) == "unknown"
