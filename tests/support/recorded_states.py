"""The recorded snapshots of a real Caffe: their nets as Caffe built them, and what they hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import FIRST_OWN_NUMBER
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.nn.net import Net
from tests.support.golden_cases import graph_of
from tests.support.training import SNAPSHOTS, Trainer, solver_of

NAMES = ("SGD_multistep", "Adam", "SGD_bn_diff")
NEEDS = ("data.h5", "list.txt", "net.prototxt", "solver.prototxt", "solver_h5.prototxt")


def bring(name: str, folder: Path) -> None:
    """Copy what the recorded run ``name`` started from to ``folder``."""
    for file in NEEDS:
        shutil.copy(SNAPSHOTS / name / file, folder)


def solver(name: str, suffix: str = "") -> RunPlan:
    """The solver of the run; ``suffix`` "_h5": the one that wrote HDF5."""
    return solver_of((SNAPSHOTS / name / f"solver{suffix}.prototxt").read_text())


def built(name: str, suffix: str = "") -> tuple[RunPlan, Net, UpdateRule]:
    """Solver, net (with its HDF5Data layer, so from a folder that holds the data) and rule of the run."""
    plan = solver(name, suffix)
    net = Net(graph_of((SNAPSHOTS / name / "net.prototxt").read_text()))
    return plan, net, make_rule(plan.optim, net, plan.snapshot_diff)


def trainer(name: str, suffix: str = "") -> Trainer:
    """The run, ready to train from the weights it started from."""
    folder = SNAPSHOTS / name
    net, solver = ((folder / file).read_text() for file in ("net.prototxt", f"solver{suffix}.prototxt"))
    made = Trainer(net, solver, folder / "data.h5")
    run = np.load(folder / "run.npz")
    made.set_weights({key.removeprefix("init/"): run[key] for key in run.files if key.startswith("init/")})
    return made


def parameters(net: Net) -> dict[str, torch.Tensor]:
    return {f"{layer}/{blob}": value.detach().clone() for (layer, blob), value in net.values_by_name().items()}


def caffe_class(name: str) -> type[Message]:
    """The message class ``name`` of a schema without any of bpt's own fields, as Caffe's program has it."""
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    for message in file.message_type:
        for kept in list(message.field):
            if kept.number >= FIRST_OWN_NUMBER and not message.name.startswith(("V0", "V1")):
                message.field.remove(kept)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bpt.{name}"))
