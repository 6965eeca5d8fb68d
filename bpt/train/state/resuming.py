"""Resuming a run from a snapshot."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator

from bpt.base.errors import BptError, FileError
from bpt.base.file_digest import file_digest
from bpt.base.native_paths import base_name, native_path
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.gradients import param_name
from bpt.engine.optim.rules import UpdateRule
from bpt.nn.net import Net
from bpt.train.state import caffe_binary, hdf5, integrity
from bpt.train.state.exchange_memory import keep_rank
from bpt.train.state.stored import StoredBlob, StoredLayers, from_weights, no_state, shape_string
from bpt.train.state.weights import Copy, copy_blobs, kind_of_file, match_layers, open_weights

LOG = logging.getLogger("bpt")


def restore(path: str, net: Net, rule: UpdateRule, rank: int | None = None) -> pb.SolverState:
    """Restore weights and history from the snapshot with the solver state at ``path``.

    Each rank reads the files and takes its part; of HDF5 files it reads only this part.

    Args:
        rank: the rank whose exchange's memory is returned; ``None``: that of no rank.

    Returns:
        The state, without its history, and with the memory of that rank's exchange.

    Raises:
        FileError: a file is missing, damaged or of another kind, or belongs to another net or solver type. The message
            says which layer or blob differs, and how, or which layers of the net have no weights in the file.
    """
    with contextlib.ExitStack() as stack:
        state, blobs = stack.enter_context(_open_state(path))
        count = len(blobs) - len(state.exchange_memory)
        history = blobs[:count]
        keep_rank(state, blobs[count:], rank)
        _check_type(state, rule, path)
        model = learned_net(state, path)
        stored = stack.enter_context(open_weights(model)) if state.HasField("learned_net") else None
        copies = [] if stored is None else match_layers(net, stored, model)
        averages_begin = bool(rule.averages) and not state.averaged
        copies += _match_history(history, net, rule, path, state.averaged)
        if stored is not None:
            _check_complete(net, stored, model)
        LOG.info("SGDSolver: restoring history")
        copy_blobs(copies)
        if averages_begin:
            LOG.info("%s has no average of the weights: it begins with the weights themselves", path)
            for average, parameter, param in zip(rule.averages, rule.parameters, net.local_params, strict=True):
                average.copy_(parameter.own(net.value(param).detach()))
    return state


def read_state(path: str) -> pb.SolverState:
    """Return the solver state at ``path``, without its history.

    Raises:
        FileError: the file is missing, damaged, or of another kind.
    """
    with _open_state(path) as (state, _):
        return state


def check_kind_of_state(path: str) -> None:
    """Raise a FileError if the file at ``path`` is no solver state by its beginning; this does not read it whole."""
    if kind_of_file(path) != "solverstate":
        read_state(path)


def find_newest(*prefixes: str) -> str | None:
    """Return the solver state of the newest good snapshot under any of ``prefixes``.

    That is the snapshot with the most iterations from the run that wrote last. A snapshot that ``verify`` refuses is
    skipped with a warning, and the next one counts.
    """
    found = []
    for iteration, path in [each for prefix in prefixes for each in _states_under(prefix)]:
        try:
            state = read_state(path)
        except BptError as error:
            _skip(path, error)
        else:
            found.append((state.run, state.written or os.path.getmtime(path), iteration, path))
    last = {run: max(written for other, written, *_ in found if other == run) for run, *_ in found}
    for run, _, _, path in sorted(found, key=lambda each: (last[each[0]], *each[2:]), reverse=True):
        try:
            verify(path)
        except BptError as error:
            _skip(path, error)
        else:
            others = len(last) - 1
            if others:
                which = f"run {run}, which wrote last" if run else "a run without a name, which wrote last"
                LOG.info("%s is of %s; there are snapshots of %d other%s", path, which, others, "s" * (others > 1))
            return path
    return None


def _skip(path: str, error: BptError) -> None:
    """Warn of a skipped snapshot and the reason, with its path only once."""
    why = error.reason if isinstance(error, FileError) and error.path == path else error
    LOG.warning("Skipping snapshot %s: %s", path, why)


def _states_under(prefix: str) -> Iterator[tuple[int, str]]:
    """Yield iteration and path of each solver state."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"_iter_(\d+)\.solverstate(\.h5)?")
    try:
        found = os.listdir(folder or ".")
    except OSError:
        return
    for match in filter(None, map(pattern.fullmatch, found)):
        yield int(match[1]), os.path.join(folder, match[0])


def verify(path: str) -> None:
    """Read the whole snapshot with the solver state at ``path``, and check it.

    Raises:
        FileError: a file is missing or damaged, the weights do not belong to the state, or values are not finite.
    """
    has_checksum = integrity.has_checksum(path)
    with _open_state(path) as (state, history):
        if state.HasField("run") and not has_checksum:
            raise FileError(path, "is damaged: it has lost its checksum")
        for blob in history:
            blob.check()
    if not state.HasField("learned_net"):
        return
    model = learned_net(state, path)
    with open_weights(model) as layers:
        if not _are_of(state, model):
            raise FileError(model, f"is damaged, or of another run: these are not the weights that {path} belongs to")
        for blobs in layers.values():
            for blob in blobs.values():
                blob.check()


def _are_of(state: pb.SolverState, model: str) -> bool:
    """Return whether the file ``model`` has the digest of the state's weights; True for a state without a digest."""
    try:
        return not state.HasField("weights_digest") or file_digest(model) == state.weights_digest
    except OSError:
        return False


@contextlib.contextmanager
def _open_state(path: str) -> Iterator[tuple[pb.SolverState, list[StoredBlob]]]:
    """Provide a solver state of either format with its history and exchanges' memory, for reading in the block."""
    kind = kind_of_file(path)
    if kind == "caffemodel":
        raise FileError(path, no_state(""))
    if kind == "hdf5":
        with hdf5.open_state(path) as state:
            yield state
    else:
        yield caffe_binary.read_state(path)


def learned_net(state: pb.SolverState, path: str) -> str:
    """Return the path of the weights of the state at ``path``: beside the state, or the written relative path.

    Files may have been moved or copied, so the file beside the state comes first, unless the other one has the digest.
    """
    name = os.fsdecode(state.learned_net)  # protobuf returns a path that is not UTF-8 as bytes
    beside = os.path.join(os.path.dirname(path), os.path.basename(name))
    if not os.path.exists(beside):  # the path may be from Windows
        beside = os.path.join(os.path.dirname(path), base_name(name))
    name = native_path(name)
    there = [each for each in (beside, name) if os.path.exists(each)]
    if len(there) > 1 and not _are_of(state, beside) and _are_of(state, name):
        return name
    return there[0] if there else name


def _check_type(state: pb.SolverState, rule: UpdateRule, path: str) -> None:
    # Caffe's own states do not have the type; for these only the number of history blobs can show it.
    if state.solver_type and state.solver_type != rule.spec.type:
        raise FileError(
            path,
            f"was written by a solver of type {state.solver_type}, whose history {rule.spec.type} cannot use; "
            f'set type: "{state.solver_type}", or start from its weights with {from_weights()}',
        )


def _match_history(history: list[StoredBlob], net: Net, rule: UpdateRule, path: str, averaged: bool) -> list[Copy]:
    """Return the copies of the file's blobs, which has all parameters, to the tensors of the rule's history.

    Args:
        averaged: whether the file's last blobs are the average of the weights.
    """
    solver = rule.spec.type
    params = net.graph.learnable * (rule.tensors_per_parameter - (bool(rule.averages) and not averaged))
    if averaged and not rule.averages:
        history = history[: len(history) - len(net.graph.learnable)]
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
                f"history blob {index}, of parameter {param_name(net.graph, param)}, has shape "
                f"{shape_string(blob.shape)}, but the parameter's is {shape_string(param.shape)}; it was written for "
                "another net",
            )
    held = [(blob, param) for blob, param in zip(history, params, strict=True) if net.holds(param)]
    moments = len(held) // len(rule.parameters) if rule.parameters else 0
    return [
        Copy(target, blob, param.shape, net.part.slice_of(param), own.elements)
        for target, (blob, param), own in zip(rule.history[: len(held)], held, rule.parameters * moments, strict=True)
    ]


def _check_complete(net: Net, stored: StoredLayers, path: str) -> None:
    """Raise a FileError if the weights lack a layer of the net; unlike in fine-tuning, fillers must not replace it."""
    owned = {param.layer for param in net.graph.params if not param.shared}
    missing = [node.name for node in net.graph.nodes if node.index in owned and node.name not in stored]
    if missing:
        names = ", ".join(f'"{name}"' for name in missing)
        raise FileError(
            path,
            f"has no parameters of layer{'s' * (len(missing) > 1)} {names}, so the run cannot continue from it; it was "
            f"written for another net: start from its weights with {from_weights()}",
        )
