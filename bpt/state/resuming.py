"""Going on from a snapshot."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator

from bpt.errors import BptError, FileError
from bpt.graph.layer_graph import Param
from bpt.net import Net
from bpt.optim.rules import UpdateRule
from bpt.proto import bpt_pb2 as pb
from bpt.state import binary, hdf5
from bpt.state.stored import NO_STATE, StoredBlob, StoredLayers, shape_string
from bpt.state.weights import Copy, copy_blobs, kind_of_file, match_layers, open_weights

LOG = logging.getLogger("bpt")


def restore(path: str, net: Net, rule: UpdateRule) -> pb.SolverState:
    """Put weights and history back as the snapshot with the solver state at ``path`` holds them.

    Each rank reads the files and takes what it holds; of HDF5 it reads nothing else.

    Returns:
        The state, without its history.

    Raises:
        FileError: a file is missing, damaged or of another kind, or belongs to another net or solver type; it says
            which layer or blob differs, and how, or which layers of the net have no weights in it.
    """
    with contextlib.ExitStack() as stack:
        state, history = stack.enter_context(_open_state(path))
        _check_type(state, rule, path)
        model = learned_net(state, path)
        stored = stack.enter_context(open_weights(model)) if state.HasField("learned_net") else None
        copies = [] if stored is None else match_layers(net, stored, model)
        copies += _match_history(history, net, rule, path)
        if stored is not None:
            _check_complete(net, stored, model)
        LOG.info("SGDSolver: restoring history")
        copy_blobs(copies)
    return state


def read_state(path: str) -> pb.SolverState:
    """The solver state at ``path``, without its history.

    Raises:
        FileError: missing, damaged, or another kind of file.
    """
    with _open_state(path) as (state, _):
        return state


def find_newest(prefix: str) -> str | None:
    """The solver state of the newest good snapshot under ``prefix``: the one after the most iterations.

    A snapshot is good if all of its state and its weights can be read. One that is not is skipped with a warning.
    """
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"_iter_(\d+)\.solverstate(\.h5)?")
    try:
        found = [match for match in map(pattern.fullmatch, os.listdir(folder or ".")) if match]
    except OSError:
        return None
    for match in sorted(found, key=lambda match: (int(match[1]), match[0]), reverse=True):
        path = os.path.join(folder, match[0])
        try:
            _read_through(path)
        except BptError as error:
            LOG.warning("Skipping snapshot %s: %s", path, error)
        else:
            return path
    return None


def _read_through(path: str) -> None:
    with _open_state(path) as (state, history):
        for blob in history:
            blob.check()
    with open_weights(learned_net(state, path)) as layers:
        for blobs in layers.values():
            for blob in blobs.values():
                blob.check()


@contextlib.contextmanager
def _open_state(path: str) -> Iterator[tuple[pb.SolverState, list[StoredBlob]]]:
    """A solver state of either format and its history, to be read while the file is open."""
    kind = kind_of_file(path)
    if kind == "caffemodel":
        raise FileError(path, NO_STATE.format(suffix=""))
    if kind == "hdf5":
        with hdf5.open_state(path) as state:
            yield state
    else:
        yield binary.read_state(path)


def learned_net(state: pb.SolverState, path: str) -> str:
    """Where the weights of the state at ``path`` are: as written, which is relative, or beside the state."""
    name = os.fsdecode(state.learned_net)  # protobuf gives bytes that are not UTF-8 as they are
    beside = os.path.join(os.path.dirname(path), os.path.basename(name))
    return beside if not os.path.exists(name) and os.path.exists(beside) else name


def _check_type(state: pb.SolverState, rule: UpdateRule, path: str) -> None:
    # Caffe's own states do not tell; then only the number of history blobs can.
    if state.solver_type and state.solver_type != rule.spec.type:
        raise FileError(
            path,
            f"was written by a solver of type {state.solver_type}, whose history {rule.spec.type} cannot use; "
            f'set type: "{state.solver_type}", or start from its weights with --weights',
        )


def _match_history(history: list[StoredBlob], net: Net, rule: UpdateRule, path: str) -> list[Copy]:
    """Which tensors of the rule's history take which blobs of the file, which holds those of all parameters."""
    solver = rule.spec.type
    params = net.graph.learnable * rule.moments
    if len(history) != len(params):
        raise FileError(
            path,
            f"Incorrect length of history blobs: {len(history)} in the file, but {solver} on this net has "
            f"{len(params)}; it was written with another solver type or for another net",
        )
    for index, (blob, param) in enumerate(zip(history, params, strict=True)):
        if not blob.fits(param.shape):
            raise FileError(
                path,
                f"history blob {index}, of parameter {_name(net, param)}, has shape {shape_string(blob.shape)}, but "
                f"the parameter's is {shape_string(param.shape)}; it was written for another net",
            )
    held = [(blob, param) for blob, param in zip(history, params, strict=True) if net.holds(param)]
    return [
        Copy(target, blob, param.shape, net.part.slice_of(param))
        for target, (blob, param) in zip(rule.history, held, strict=True)
    ]


def _check_complete(net: Net, stored: StoredLayers, path: str) -> None:
    """Unlike fine-tuning, going on wants all weights (Caffe goes on from fillers, without a word)."""
    owned = {param.layer for param in net.graph.params if not param.shared}
    missing = [node.name for node in net.graph.nodes if node.index in owned and node.name not in stored]
    if missing:
        names = ", ".join(f'"{name}"' for name in missing)
        raise FileError(
            path,
            f"has no parameters of layer{'s' * (len(missing) > 1)} {names}, so the run cannot go on from it; it was "
            "written for another net: start from its weights with --weights",
        )


def _name(net: Net, param: Param) -> str:
    return f"{net.graph.nodes[param.layer].name}/{param.blob}"
