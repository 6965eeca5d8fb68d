"""A small solver with a net of its own, for tests of what happens before training."""

from __future__ import annotations

from pathlib import Path

from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan

NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 }
                           data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
        convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
        inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 10 engine: CONTIGUOUS\n'


def small_solver(folder: Path, *overrides: str, net: str = NET, text: str = SOLVER) -> RunPlan:
    """The run of the solver in ``folder``, with its net beside it."""
    (folder / "net.prototxt").write_text(net)
    path = folder / "solver.prototxt"
    path.write_text(text)
    return read_plan(path, overrides)
