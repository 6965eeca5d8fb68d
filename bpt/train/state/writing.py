"""Writes snapshots, and checks before a run that this is possible."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bpt.base.atomic import atomic_paths, creation_problem
from bpt.base.errors import WriteError
from bpt.base.file_digest import file_digest
from bpt.base.violation import Violation
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.lr_policy import current_step
from bpt.engine.optim.rules import UpdateRule
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import Part
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.state import caffe_binary as binary
from bpt.train.state import hdf5, hdf5_names, integrity
from bpt.train.state.blob_gathering import Gathered, blobs_of, history_of, layers_of, write_together
from bpt.train.state.exchange_memory import Remembered

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

LOG = logging.getLogger("bpt")


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield the reasons why due snapshots cannot be written here; check this before training, to lose no hours."""
    if not plan.snapshot and not plan.snapshot_after_train:
        return
    folder = os.path.dirname(plan.snapshot_prefix) or "."
    while folder and not os.path.lexists(folder):  # a missing folder is made when it is needed
        folder = os.path.dirname(folder) or "."
    if not os.path.isdir(folder):
        problem = f'"{folder}" is not a folder'
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f'the folder "{folder}" is not writable'
    else:
        problem = creation_problem(folder)
    if problem:
        yield Violation(("snapshot_prefix",), f'cannot write to snapshot_prefix "{plan.snapshot_prefix}": {problem}')
    if plan.snapshot_format == pb.SolverParameter.HDF5 and not hdf5.available():
        yield Violation(("snapshot_format",), "snapshot_format: HDF5 needs the package h5py: pip install 'bpt[hdf5]'")


def check_names(plan: RunPlan, graph: LayerGraph) -> None:
    """Raise a LayerError, before training, if the snapshots' format does not support a layer's name."""
    if (plan.snapshot or plan.snapshot_after_train) and plan.snapshot_format == pb.SolverParameter.HDF5:
        hdf5_names.check_names(graph.nodes)


def write(
    plan: RunPlan,
    net: Net,
    rule: UpdateRule,
    state: pb.SolverState,
    comm: Communicator | None = None,
    parts: Sequence[Part] | None = None,
    name: str = "",
    memory: Sequence[Remembered] = (),
    history: Sequence[Gathered] = (),
) -> str:
    """Write a snapshot after ``state.iter`` iterations, weights and state as one commit; return the state's path.

    Either both files are written or none, so a state always has its weights. This is a collective call: rank 0 writes
    whole blobs, and the other ranks send it their parts. So a snapshot does not depend on the number of ranks.

    Args:
        plan: has the prefix, the format, and whether to write diffs.
        net: the net that is trained.
        rule: the update rule with the history. ``snapshot_diff`` saves its last updates, which Caffe's diffs hold then.
        state: ``iter``, which is equal on all ranks, and rank 0's own fields. This call sets the others: Caffe's fields
            and, if the state names its ``run``, those by which ``verify`` finds damage.
        comm: the ranks that hold the net; by default this rank has all of it.
        parts: the part of the net on each rank of ``comm``.
        name: the name after ``snapshot_prefix`` (see ``name_after``).
        memory: the memory of exchanges, even of ranks that are not in ``comm``.
        history: that of the rule if ranks divide it, even of ranks that are not in ``comm``.

    Raises:
        WriteError: a file could not be written; the previous file is intact. All ranks raise it.
    """
    comm = comm or SerialCommunicator()
    parts = parts or (net.part,)
    in_hdf5 = plan.snapshot_format == pb.SolverParameter.HDF5
    words = "HDF5" if in_hdf5 else "binary proto"
    model, path = (_path(plan, name or name_after(state.iter), kind) for kind in ("caffemodel", "solverstate"))
    history = history or history_of(net, rule.history, rule.tensors_per_parameter, comm, parts)
    layers = layers_of(net, rule.updates if plan.snapshot_diff else None, comm, parts)
    of_format = hdf5 if in_hdf5 else binary

    def write_both() -> None:
        _make_folder(model)
        with atomic_paths(model, path) as (new_model, new_state):
            LOG.info("Snapshotting to %s file %s", words, model)
            of_format.write_weights(net.graph.name, layers, new_model)
            full = pb.SolverState()
            full.CopyFrom(state)
            full.learned_net = model
            full.current_step = state.current_step or current_step(plan.optim, state.iter - 1)
            if state.run:
                full.written = time.time()
                full.weights_digest = file_digest(new_model)
            LOG.info("Snapshotting solver state to %s file %s", words, path)
            of_format.write_state(full, history, new_state, memory)
            if state.run:
                integrity.add_checksum(new_state)

    write_together(comm, (*blobs_of(layers), *history, *(each.values for each in memory)), write_both)
    return path


def state_path(plan: RunPlan, iteration: int) -> str:
    """Return the path of the solver state that ``write`` writes after ``iteration`` iterations."""
    return _path(plan, name_after(iteration), "solverstate")


def average_path(plan: RunPlan, name: str) -> str:
    """Return the path of the average of the weights beside a snapshot with this name."""
    return _path(plan, f"{name}_average", "caffemodel")


def name_after(iteration: int) -> str:
    """Return the text after ``snapshot_prefix`` in the names of a snapshot after ``iteration`` iterations."""
    return f"iter_{iteration}"


def files_of(state: str) -> tuple[str, str, str]:
    """Return the files of the snapshot with the solver state ``state``, which comes first."""
    start, ending = state.rsplit(".solverstate", 1)
    return state, f"{start}.caffemodel{ending}", f"{start}_average.caffemodel{ending}"


def _path(plan: RunPlan, name: str, kind: str) -> str:
    suffix = ".h5" if plan.snapshot_format == pb.SolverParameter.HDF5 else ""
    return f"{plan.snapshot_prefix}_{name}.{kind}{suffix}"


def _make_folder(path: str) -> None:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None
