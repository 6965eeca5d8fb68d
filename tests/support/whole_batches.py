"""A recurrent net whose batches stay whole, and its loss worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tests.support.hdf5_files import write

STEPS, STREAMS, BATCHES = 3, 2, 5


ROWS = STEPS * STREAMS


NET = f"""
name: "small"
layer {{ name: "data" type: "HDF5Data" top: "x" top: "cont" top: "y"
  hdf5_data_param {{ source: "list.txt" batch_size: {ROWS} }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0 }} }}
layer {{ name: "steps" type: "Reshape" bottom: "fc" top: "steps" reshape_param {{ shape {{ dim: {STEPS} dim: -1 dim: 4 }} }} }}
layer {{ name: "marks" type: "Reshape" bottom: "cont" top: "marks" reshape_param {{ shape {{ dim: {STEPS} dim: -1 }} }} }}
layer {{ name: "lstm" type: "LSTM" bottom: "steps" bottom: "marks" top: "lstm"
  recurrent_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "labels" type: "Reshape" bottom: "y" top: "labels" reshape_param {{ shape {{ dim: {STEPS} dim: -1 }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "lstm" top: "ip"
  inner_product_param {{ num_output: 3 axis: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "labels" top: "loss" softmax_param {{ axis: 2 }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "labels" top: "accuracy" include {{ phase: TEST }}
  accuracy_param {{ axis: 2 }} }}
"""  # noqa: E501


SOLVER = """
net: "net.prototxt" test_iter: 5 test_interval: 4 base_lr: 0.2 momentum: 0.9 lr_policy: "fixed" max_iter: 8
snapshot_prefix: "small" random_seed: 3 engine: CONTIGUOUS display: 0
"""


def arrays(begin: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, markers and labels; ``begin`` marks the first step of each batch."""
    generator = np.random.default_rng(1)
    cont = np.ones((BATCHES, STEPS, STREAMS))
    cont[:, 0] = begin
    rows = BATCHES * ROWS
    return generator.standard_normal((rows, 5)), cont.ravel(), generator.integers(0, 3, rows)


def set_up(folder: Path) -> None:
    """Put net, solver and data into ``folder``, which is the current one."""
    put(begin=0)
    (folder / "list.txt").write_text("0.h5\n")
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)


def put(begin: int) -> None:
    """Write the data set."""
    write(Path.cwd(), dict(zip(("x", "cont", "y"), arrays(begin), strict=True)))


def loss_by_hand(w: dict[str, Tensor], batch: int, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Of the net above, with Caffe's gates (input, forget, output, new), and the states that it leaves."""
    rows = slice(batch % BATCHES * ROWS, (batch % BATCHES + 1) * ROWS)
    x, marks, labels = (torch.from_numpy(array[rows]) for array in arrays(begin=1))
    inputs = (x @ w["fc/0"].T + w["fc/1"]) @ w["lstm/0"].T + w["lstm/1"]
    h, c = state
    tops = []
    for step, mark in zip(inputs.view(STEPS, STREAMS, -1), marks.view(STEPS, STREAMS, 1), strict=True):
        i, f, o, new = (step + (h * mark) @ w["lstm/2"].T).chunk(4, 1)
        c = f.sigmoid() * (c * mark) + i.sigmoid() * new.tanh()
        h = o.sigmoid() * c.tanh()
        tops.append(h)
    scores = torch.cat(tops) @ w["ip/0"].T + w["ip/1"]
    return functional.cross_entropy(scores, labels.long()), [h.detach(), c.detach()]
