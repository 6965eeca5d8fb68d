"""``bpt train --trace`` under mpirun: one file of all ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi
from tests.support.read_trace import read_chrome

pytestmark = needs_mpi

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 48 dim: 3 dim: 24 dim: 24 } shape { dim: 48 }
                     data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 16 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 30 snapshot: 15 snapshot_prefix: "s"\n'


@pytest.mark.slow
def test_three_ranks(tmp_path: Path) -> None:
    """Every rank has its instructions, side by side, and nothing of its time is left out; clocks are aligned."""
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.replace('"s"', f'"{tmp_path}/s"'))
    solver, file = str(tmp_path / "solver.prototxt"), tmp_path / "t.json.gz"
    done = mpirun(3, [sys.executable, "-m", "bpt", "train", "--solver", solver, "--trace", str(file)], timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"Trace: wrote {file}" in done.stderr
    trace = read_chrome(file)
    assert list(trace.processes) == [0, 1, 2]
    sums = []
    for rank in range(3):
        trace.check_compute(rank, dict.fromkeys("FBXWU", 30), full=0.95)
        tracks = [bars for (of, kind), bars in trace.tracks.items() if of == rank and kind.startswith("exchange")]
        sums.append([bar for bars in tracks for bar in bars if bar.details.get("for") == "X0"])
        assert 0 <= trace.about[f"clock error of rank {rank} (us)"] < 1e5
    # Nobody has a sum before all have brought their part: on aligned clocks all calls of it overlap.
    errors = 2 * max(trace.about[f"clock error of rank {rank} (us)"] for rank in range(3))
    for calls in zip(*sums, strict=True):
        assert max(bar.start for bar in calls) <= min(bar.end for bar in calls) + errors


@pytest.mark.slow
def test_a_name_that_says_no_format_is_refused_once(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    solver = str(tmp_path / "solver.prototxt")
    done = mpirun(2, [sys.executable, "-m", "bpt", "train", "--solver", solver, "--trace", "t.txt"], timeout=120)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if "error:" in line] == [
        "error: --trace t.txt: the name must end in .json or .json.gz (Chrome's trace format) or .pftrace (Perfetto's)"
    ]
