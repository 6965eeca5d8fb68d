"""Each of two ranks takes little more than half of the memory of one process: in shards, and in stages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import mpirun, needs_mpi
from tests.support.paths import PROTOTXT

pytestmark = [needs_mpi, pytest.mark.slow]

SOLVER = """
base_lr: 1e-6 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 random_seed: 1
engine: CONTIGUOUS snapshot_after_train: false
"""
FC6 = """
net_param {{
  layer {{
    name: "data" type: "DummyData" top: "pool5" top: "target"
    dummy_data_param {{
      shape {{ dim: 8 dim: 512 dim: {side} dim: {side} }} shape {{ dim: 8 dim: 4096 }}
      data_filler {{ type: "uniform" }} data_filler {{ type: "constant" }}
    }}
  }}
  layer {{
    name: "fc6" type: "InnerProduct" bottom: "pool5" top: "fc6"
    inner_product_param {{ num_output: 4096 weight_filler {{ type: "gaussian" std: 0.005 }} }}
  }}
  layer {{ name: "loss" type: "EuclideanLoss" bottom: "fc6" bottom: "target" top: "loss" }}
}}
"""
IMAGES = """layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 16 dim: 3 dim: 64 dim: 64 } shape { dim: 16 }
    data_filler { type: "uniform" max: 100 } data_filler { type: "constant" value: 3 } } }
"""
VGG16_PARAMETERS = 43_985_704  # on images of 64 × 64
# Devices too small for what is fastest, which leaves nearly all parameters to the second stage.
DEVICES = 'node { name: "a" gflops: 10 memory: 410 } node { name: "b" gflops: 10 memory: 410 }'


def peaks(ranks: int, solver: Path, parallel: str, *options: str) -> list[int]:
    """The bytes that each rank takes beyond what it has before it trains."""
    argv = [sys.executable, "-m", "tests.mpi.memory_ranks", str(solver), parallel, *options]
    done = mpirun(ranks, argv, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("side", [3, 7])  # 7: fc6 of VGG-16 itself, 25088 inputs
def test_a_rank_holds_its_slice_only(side: int, tmp_path: Path) -> None:
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f"{SOLVER} max_iter: 3 {FC6.format(side=side)}")
    (alone,) = peaks(1, solver, "")
    assert alone > 3 * 4 * 4096 * 512 * side * side  # with the gradient and the momentum
    shards = peaks(2, solver, "num_shards: 2")
    assert max(shards) <= 0.55 * alone, [shard / alone for shard in shards]


def test_a_rank_holds_its_layers_only(tmp_path: Path) -> None:
    """VGG-16 on two stages."""
    text = (PROTOTXT / "vgg16" / "train_val.prototxt").read_text()
    text = re.sub(r'layer \{\n  name: "data".*?\n\}\n', "", text, flags=re.DOTALL)
    (tmp_path / "net.prototxt").write_text(text.replace('name: "VGG_ILSVRC_16_layers"\n', IMAGES))
    (tmp_path / "devices.prototxt").write_text(DEVICES)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f'{SOLVER} max_iter: 2 net: "{tmp_path}/net.prototxt"')
    (alone,) = peaks(1, solver, "", "--keep")
    assert alone > 3 * 4 * VGG16_PARAMETERS  # with the gradient and the momentum
    devices = f'devices: "{tmp_path}/devices.prototxt"'
    for schedule in ("GPIPE", "ONE_F_ONE_B"):
        parallel = f"num_stages: 2 pipeline_param {{ schedule: {schedule} micro_batches: 4 {devices} }}"
        stages = peaks(2, solver, parallel, "--keep")
        assert max(stages) <= 0.65 * alone, (schedule, [stage / alone for stage in stages])
