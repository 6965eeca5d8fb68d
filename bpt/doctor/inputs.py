"""Which data sets and files a run reads, besides texts. Every rank reads for itself, see ``readers``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bpt.doctor.content import (
    Content,
    Look,
    file_content,
    hdf5_content,
    image_content,
    lmdb_content,
    mean_content,
    volume_content,
)
from bpt.doctor.readers import nets_with_data, reads_all
from bpt.graph.source import layer_specs
from bpt.graph.spec import LayerSpec
from bpt.graph.state import filter_layers
from bpt.plan.nets import NetPlan
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource, resolve_path
from bpt.state import read_state, weight_files
from bpt.state.resuming import learned_net


@dataclass(frozen=True)
class Input:
    """Something that is read: its name in findings, and what looks into it."""

    name: str
    look: Look


def inputs_of(plans: Mapping[str, NetPlan], solver: SolverSource, resume: str = "", rank: int = 0) -> list[Input]:
    """What a rank reads in a run besides texts, each once.

    Args:
        plans: its nets.
        resume: the solver state that the run goes on from; empty: none.

    Raises:
        LayerError: the rules of a layer contradict each other.
    """
    found: list[Input] = []
    for plan in nets_with_data(plans, solver.param, rank).values():
        net = plan.source
        for spec in filter_layers(layer_specs(net.param, net.origins), plan.state):
            found += _of_layer(spec)
    all_files = reads_all(solver.param, rank)
    weights = weight_files(solver.param.weights, solver.path) if all_files else []
    found += [Input(f"weights {path}", partial(file_content, path)) for path in weights]
    balance = solver.param.parallel_param.balance_param
    if balance.profile and solver.param.parallel_param.balance == pb.ParallelParameter.STATIC:
        path = resolve_path(balance.profile, solver.path)
        found.append(Input(f"profile {path}", partial(file_content, path)))
    if resume and all_files:
        found.append(Input(f"snapshot {resume}", partial(_snapshot_content, resume)))
    return list({one.name: one for one in found}.values())


def _of_layer(spec: LayerSpec) -> Iterator[Input]:
    param = spec.param
    if spec.type == "Data" and param.data_param.source:
        path = param.data_param.source
        yield Input(f"LMDB {path}", partial(lmdb_content, path))
    elif spec.type == "HDF5Data" and param.hdf5_data_param.source:
        path = param.hdf5_data_param.source
        yield Input(f"HDF5 list {path} ({', '.join(spec.tops)})", partial(hdf5_content, path, spec.tops))
    elif spec.type == "VolumeData" and param.volume_data_param.source:
        path, root_folder = param.volume_data_param.source, param.volume_data_param.root_folder
        yield Input(f"list of volumes {path}", partial(volume_content, path, root_folder))
    elif spec.type == "ImageData" and param.image_data_param.source:
        path, root_folder = param.image_data_param.source, param.image_data_param.root_folder
        yield Input(f"list of images {path}", partial(image_content, path, root_folder))
    elif spec.type == "WindowData" and param.window_data_param.source:
        path = param.window_data_param.source
        yield Input(f"window file {path}", partial(file_content, path))
    elif spec.type == "InfogainLoss" and param.infogain_loss_param.source:
        path = param.infogain_loss_param.source
        yield Input(f"infogain matrix {path}", partial(file_content, path))
    if path := param.transform_param.mean_file:
        yield Input(f"mean image {path}", partial(mean_content, path))


def _snapshot_content(path: str) -> Content:
    """A solver state together with the weights that it names."""
    model = learned_net(read_state(path), path)
    state, weights = file_content(path), file_content(model)
    digest = hashlib.blake2b(f"{state.digest} {weights.digest}".encode(), digest_size=8).hexdigest()
    return Content(f"{state.amount}, with {model} of {weights.amount}", digest)
