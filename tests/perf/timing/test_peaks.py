"""The roofs: rates from times that the test gives, and one short measurement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from bpt.perf.timing import peaks
from bpt.perf.timing.peaks import Peak, PeakMeter, Peaks
from bpt.system.device import CPU


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (32, 64)})
    monkeypatch.setattr(peaks, "_array_bytes", lambda device: 2**20)
    monkeypatch.setattr(peaks, "REPETITIONS", 3)


def test_a_roof_is_the_median_of_the_time_that_disturbed_it_least() -> None:
    peak = Peak("product", ((1.0, 2.0, 9.0), (4.0, 1.0, 5.0)))
    assert peak.rate == 4  # not 9, which was the best of all, and not 2
    assert peak.moved == 1.0  # from 2 to 4
    assert peak.spread == 1.0  # quartiles of 1 4 5: 2.5 and 4.5
    assert Peaks(peak, Peak("triad", ((0.5,),))).ridge == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.usefixtures("small")
def test_both_roofs_are_measured_as_often_as_told(dtype: torch.dtype) -> None:
    meter = PeakMeter(CPU, dtype)
    meter.measure()
    meter.measure()
    found = meter.peaks()
    assert [len(rates) for rates in (*found.compute.rounds, *found.memory.rounds)] == [3] * 4
    assert found.flops > 0
    assert found.bandwidth > 0
    assert found.compute.what in ("product of 32 × 32 matrices", "product of 64 × 64 matrices")
    assert found.memory.what in ("triad of arrays of 1 MiB", "copy of arrays of 1 MiB")


@pytest.mark.usefixtures("small")
def test_rates_are_operations_and_bytes_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeakMeter, "_time", lambda self, step, repetitions: [2.0] * repetitions)
    monkeypatch.setattr(peaks, "LONGEST", 2.0)
    meter = PeakMeter(CPU, torch.float32)
    meter.measure()
    found = meter.peaks()
    assert found.flops == 2 * 64**3 / 2  # the larger of two products that take equally long
    assert found.bandwidth == 3 * 2**20 / 2  # the triad moves three arrays, the copy two


@pytest.mark.usefixtures("small")
def test_no_larger_product_is_tried_after_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "LONGEST", 0.0)
    meter = PeakMeter(CPU, torch.float32)
    meter.measure()
    assert meter.peaks().compute.what == "product of 32 × 32 matrices"


def test_the_arrays_are_larger_than_all_last_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for core, shared in enumerate(("0-1", "0-1", "2")):
        for index, size in (("index0", "32K"), ("index3", "65536K")):
            folder = tmp_path / f"cpu{core}" / "cache" / index
            folder.mkdir(parents=True)
            (folder / "size").write_text(f"{size}\n")
            (folder / "shared_cpu_list").write_text(f"{shared}\n")
    monkeypatch.setattr(peaks, "_CACHES", tmp_path)
    monkeypatch.setattr(peaks, "available_memory", lambda: 2**40)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    assert peaks._array_bytes(CPU) == 4 * 2 * 2**26  # two caches of 64 MiB
    monkeypatch.setattr(peaks, "available_memory", lambda: 2**30)
    assert peaks._array_bytes(CPU) == 2**26  # a sixteenth of what there is
    monkeypatch.setattr(peaks, "_CACHES", tmp_path / "none")
    monkeypatch.setattr(peaks, "available_memory", lambda: 2**40)
    assert peaks._array_bytes(CPU) == peaks.LEAST
