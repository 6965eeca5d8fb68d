"""Small solvers and nets in memory, and files of them."""

from __future__ import annotations

from pathlib import Path

from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan

DATA = 'layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param { %s } }'
BODY = """
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" }
"""
BATCH_NORM = 'layer { name: "norm" type: "BatchNorm" bottom: "data" top: "data" }'
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 snapshot_prefix: "x" %s'


def net_text(batch: int = 8, between: str = "", outputs: int = 3) -> str:
    """A net of one InnerProduct layer of 4 inputs; ``between`` comes before it."""
    shapes = f"shape {{ dim: {batch} dim: 4 }} shape {{ dim: {batch} }}"
    return DATA % shapes + between + BODY.replace("num_output: 3", f"num_output: {outputs}")


def write_run(folder: Path, solver: str = "", net: str | None = None) -> Path:
    """A solver, with more fields, and its net, in a new folder; returns the solver's path."""
    folder.mkdir(parents=True)
    (folder / "net.prototxt").write_text(net_text() if net is None else net)
    (folder / "solver.prototxt").write_text(SOLVER % solver)
    return folder / "solver.prototxt"


def read_run(folder: Path, solver: str = "", net: str | None = None) -> RunPlan:
    """What is read from ``write_run``."""
    return read_plan(write_run(folder, solver, net))


def data_net(source: str, shuffle: bool = True, test: str = "", batch: int = 4) -> str:
    """A net of 15 weights that trains on the LMDB ``source``, of images of 1×2×2, and may be tested on ``test``."""
    data = (
        'layer {{ name: "{0}" type: "Data" top: "data" top: "label" include {{ phase: {1} }} '
        'data_param {{ source: "{2}" batch_size: {3} backend: LMDB {4} }} }}'
    )
    layers = [data.format("train", "TRAIN", source, batch, "shuffle: true" if shuffle else "")]
    layers += [data.format("test", "TEST", test, batch, "")] if test else []
    return "\n".join([*layers, BODY])
