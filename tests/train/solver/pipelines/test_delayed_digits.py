"""``schedule: DELAYED`` learns handwritten digits as well as synchronous training does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.hdf5_files import write
from tests.support.spread_runs import train

datasets = pytest.importorskip("sklearn.datasets")

TRAINED = 997  # of 1797
FC = """
layer {{ name: "{0}" type: "InnerProduct" bottom: "{1}" top: "{0}" parallel_param {{ stage: {2} }}
  inner_product_param {{ num_output: {3} weight_filler {{ type: "xavier" }} }} }}
"""
NET = f"""
name: "digits"
layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "list.txt" batch_size: 50 shuffle: true }} }}
layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" include {{ phase: TEST }}
  hdf5_data_param {{ source: "tested/list.txt" batch_size: 800 }} }}
{FC.format("a", "x", 0, 128)}
layer {{ name: "ra" type: "ReLU" bottom: "a" top: "a" }}
{FC.format("b", "a", 1, 64)}
layer {{ name: "rb" type: "ReLU" bottom: "b" top: "b" }}
{FC.format("c", "b", 2, 10)}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "c" bottom: "y" top: "loss" }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "c" bottom: "y" top: "accuracy" include {{ phase: TEST }} }}
"""
SOLVER = """
net: "net.prototxt" test_iter: 1 test_interval: 300 test_initialization: false base_lr: 0.02 momentum: 0.9
weight_decay: 0.0005 lr_policy: "step" gamma: 0.1 stepsize: 200 max_iter: 300 random_seed: 1 engine: CONTIGUOUS
snapshot_after_train: false
"""


@pytest.mark.slow
def test_within_a_point_of_synchronous_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))  # they stand in the order of their writers
    images, labels = images[order], labels[order]
    (tmp_path / "tested").mkdir()
    for folder, rows in ((tmp_path, slice(TRAINED)), (tmp_path / "tested", slice(TRAINED, None))):
        write(folder, {"x": images[rows].astype(np.float32) / 16, "y": labels[rows]})
        (folder / "list.txt").write_text(f"{folder}/0.h5\n")
    Path("net.prototxt").write_text(NET)
    Path("solver.prototxt").write_text(SOLVER)

    def accuracy(ranks: int, *overrides: str) -> float:
        (line,) = (line for line in train(ranks, *overrides).lines if "accuracy" in line.words)
        return line.numbers[-1]

    synchronous = accuracy(1)
    delayed = accuracy(3, "parallel_param { num_stages: 3 pipeline_param { schedule: DELAYED allocator: MANUAL } }")
    assert synchronous > 0.95
    assert delayed > synchronous - 0.01, (delayed, synchronous)
