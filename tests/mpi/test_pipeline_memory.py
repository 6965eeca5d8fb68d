"""VGG-16 on two stages: each rank takes little more than half of the memory that one process takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi

RANKS = Path(__file__).with_name("pipeline_memory_ranks.py")
SHARE = 0.65
BATCH, SIDE = 16, 64
PARAMETERS = 43_985_704
# Devices too small for what is fastest, which leaves nearly all parameters to the second stage.
DEVICES = 'node { name: "a" gflops: 10 memory: 410 } node { name: "b" gflops: 10 memory: 410 }'


@needs_mpi
@pytest.mark.slow
def test_a_rank_holds_its_layers_only(tmp_path: Path) -> None:
    (tmp_path / "devices.prototxt").write_text(DEVICES)

    def peaks(ranks: int, parallel: str) -> list[int]:
        argv = [sys.executable, str(RANKS), str(tmp_path), str(BATCH), str(SIDE), parallel]
        done = mpirun(ranks, argv, timeout=300)
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]

    (alone,) = peaks(1, "")
    assert alone > 3 * 4 * PARAMETERS  # with the gradient and the momentum
    devices = f'devices: "{tmp_path}/devices.prototxt"'
    for schedule in ("GPIPE", "ONE_F_ONE_B"):
        stages = peaks(2, f"num_stages: 2 pipeline_param {{ schedule: {schedule} micro_batches: 4 {devices} }}")
        assert max(stages) <= SHARE * alone, (schedule, [stage / alone for stage in stages])
