"""A net with all that stages can be cut through: branches, skips, two heads, shared parameters, several losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.hdf5_files import write
from tests.support.spread_runs import ROWS, SOLVER

# "left" and "right" have one weight; "early" is a head near the bottom, whose scores the top reads again; labels and
# targets are read at several depths. Nothing normalises, so that micro-batches change nothing.
NET = """
name: "branched"
layer { name: "data" type: "HDF5Data" top: "data" top: "label" top: "target" include { phase: TRAIN }
  hdf5_data_param { source: "list.txt" batch_size: 6 shuffle: true } }
layer { name: "data" type: "HDF5Data" top: "data" top: "label" top: "target" include { phase: TEST }
  hdf5_data_param { source: "list.txt" batch_size: 5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "head" type: "InnerProduct" bottom: "conv" top: "head"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "early" type: "SoftmaxWithLoss" bottom: "head" bottom: "label" top: "early" loss_weight: 0.3 }
layer { name: "left" type: "Convolution" bottom: "conv" top: "left" param { name: "tied" } param { name: "bias" }
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "dropped" dropout_param { dropout_ratio: 0.3 } }
layer { name: "right" type: "Convolution" bottom: "dropped" top: "right" param { name: "tied" } param { name: "bias" }
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "left" bottom: "conv" top: "sum" }
layer { name: "both" type: "Concat" bottom: "sum" bottom: "right" top: "both" }
layer { name: "fc" type: "InnerProduct" bottom: "both" top: "fc"
  inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "drop2" type: "Dropout" bottom: "fc" top: "fc" }
layer { name: "point" type: "InnerProduct" bottom: "fc" top: "point"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "distance" type: "EuclideanLoss" bottom: "point" bottom: "target" top: "distance" loss_weight: 0.1 }
layer { name: "all" type: "Concat" bottom: "fc" bottom: "head" top: "all" }
layer { name: "ip" type: "InnerProduct" bottom: "all" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "scores" type: "Softmax" bottom: "ip" top: "scores" }
"""


def set_up(folder: Path) -> None:
    """Put net, solver and data into ``folder``, as ``spread_runs.set_up`` does."""
    generator = np.random.default_rng(1)
    images, targets = generator.standard_normal((ROWS, 2, 6, 6)), generator.standard_normal((ROWS, 2))
    write(folder, {"data": images, "label": np.arange(ROWS) % 3, "target": targets})
    (folder / "list.txt").write_text(f"{folder}/0.h5\n")
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER.replace("parallel_param { sync_batch_norm: true }", ""))
