"""The readers of the two files that every command starts from: the solver and the net."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from bpt.base.errors import PrototxtError
from bpt.base.native_paths import native_path, native_prefix
from bpt.base.origin import FLAG, FieldPath, Origin, locate
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.config.proto.fields import non_finite_fields
from bpt.config.proto.merge import apply_set
from bpt.config.proto.native_fields import use_native_paths
from bpt.config.proto.parse import M, ParsedText
from bpt.config.proto.text import read_text
from bpt.config.proto.upgrade import upgrade_net, upgrade_solver

_OF_NETS = ("net_param", "train_net_param", "test_net_param")
_KINDS = {"NetParameter": "a network", "SolverParameter": "a solver"}
_NO_SOLVER = "; give the solver that names it (net: …); bpt test, time and classify take a network by --model"
_NO_NET = "; give the network that it names (net: …), or the deploy text; bpt train takes a solver by --solver"
_FOR_GOOD = "upgraded in memory only; tools/upgrade_net_proto_text.py writes it in today's format"


@dataclass(frozen=True)
class SolverSource:
    """A solver as read from ``path``, with old fields upgraded and ``--set`` applied.

    ``origins`` says where each field was written. ``notes`` are for the log: the changes, in words.
    """

    param: pb.SolverParameter
    path: str
    origins: Mapping[FieldPath, Origin]
    notes: tuple[str, ...] = ()

    def origin(self, *where: str | int) -> Origin:
        """Return the place of the field ``where`` or, if it is not set, of the nearest field around it."""
        return locate(self.origins, where, self.path)


@dataclass(frozen=True)
class NetSource:
    """A net as read from ``path``, with old fields upgraded."""

    param: pb.NetParameter
    path: str
    origins: Mapping[FieldPath, Origin]
    notes: tuple[str, ...] = ()

    def origin(self, *where: str | int) -> Origin:
        """Return the place of the field ``where`` or, if it is not set, of the nearest field around it."""
        return locate(self.origins, where, self.path)


def read_solver(path: str | os.PathLike[str], overrides: Sequence[str] = (), prefix: str = FLAG) -> SolverSource:
    """Read the solver at ``path`` and apply the ``overrides`` to it, which messages show behind ``prefix``.

    Paths in it stay as written (:func:`resolve_path`). A ``snapshot_prefix`` that is not set, or that is a folder, is
    completed with the name of the solver, as in Caffe.

    Raises:
        PrototxtError: the file or an override is wrong, ``type`` is given along with ``solver_type``, or a setting of a
            fork is refused.
    """
    parsed = _read(path, pb.SolverParameter, pb.NetParameter, _NO_SOLVER)
    param, origins = parsed.message, parsed.origins
    upgrades = upgrade_solver(param, origins, parsed.path)
    apply_set(param, overrides, origins, prefix)
    upgrades += upgrade_solver(param, origins, parsed.path)  # upgrades fields of the overrides, too
    for where, words in fork_fields.refused(param):
        raise PrototxtError(words, locate(origins, where, parsed.path))
    for way, number in non_finite_fields(param):
        if not any(step in _OF_NETS for step in way):  # a net refuses its own fields, and names the layer
            names = [step for step in way if isinstance(step, str)]
            inside = f"{names[-2]}: " if len(names) > 1 else ""
            message = f"{inside}{names[-1]} is {number:g}; it must be finite"
            raise PrototxtError(message, locate(origins, way, parsed.path))
    native = [*use_native_paths(param, parsed.path), *_use_native_prefix(param)]
    notes = [*map(str, upgrades), *native, *_complete_snapshot_prefix(param, parsed.path), *_without_tests(param)]
    return SolverSource(param, parsed.path, origins, tuple(notes))


def read_net(path: str | os.PathLike[str]) -> NetSource:
    """Read the net at ``path``, also one in the old formats V0 and V1 or with other old fields.

    Settings of layers that the schema does not have are skipped; their places are in ``origins``, and the builder of
    the net refuses them.

    Raises:
        PrototxtError: the file is wrong.
    """
    parsed = _read(path, pb.NetParameter, pb.SolverParameter, _NO_NET, passing=True)
    notes = upgrade_net(parsed.message, parsed.origins, parsed.path)
    words = [*map(str, notes), f"{parsed.path}: {_FOR_GOOD}"] if notes else []
    words += use_native_paths(parsed.message, parsed.path)
    return net_source(parsed.message, parsed.path, parsed.origins, words)


def net_source(
    param: pb.NetParameter, path: str, origins: Mapping[FieldPath, Origin], notes: Sequence[str] = ()
) -> NetSource:
    """Return a net in today's format, with the existing ``notes`` and those about settings without effect.

    Raises:
        PrototxtError: the net requires an unsupported precision.
    """
    fork_fields.check_net(param, origins, path)
    return NetSource(param, path, origins, (*notes, *fork_fields.notes(param)))


def read_solver_text(path: str | os.PathLike[str]) -> ParsedText[pb.SolverParameter]:
    """Read the solver at ``path`` as written.

    Raises:
        PrototxtError: the file is wrong, or is a network.
    """
    return _read(path, pb.SolverParameter, pb.NetParameter)


def read_net_text(path: str | os.PathLike[str], *, passing: bool = False) -> ParsedText[pb.NetParameter]:
    """Read the net at ``path`` as written; ``passing`` is that of parse_text.

    Raises:
        PrototxtError: the file is wrong, or is a solver.
    """
    return _read(path, pb.NetParameter, pb.SolverParameter, passing=passing)


def _read(
    path: str | os.PathLike[str], wanted: type[M], other: type[Message], remedy: str = "", passing: bool = False
) -> ParsedText[M]:
    """Read the text at ``path`` as ``wanted``; raise an error that says so, and the ``remedy``, if it is ``other``."""
    try:
        return read_text(path, wanted, passing=passing)
    except PrototxtError:
        try:
            read_text(path, other)
        except PrototxtError:
            pass
        else:
            names = _KINDS[other.__name__], _KINDS[wanted.__name__]
            raise PrototxtError(f"{os.fspath(path)}: is the text of {names[0]}, not {names[1]}{remedy}") from None
        raise


def resolve_path(path: str, relative_to: str | os.PathLike[str]) -> str:
    """Return the file or folder that ``path``, written in the file ``relative_to``, means.

    Like Caffe it is searched from the current directory, then from the folder of the file in which it is written. If
    neither has it, the result is ``path`` unchanged, so that the error shows the written path.
    """
    path = native_path(path, ("", os.path.dirname(relative_to)))
    beside = os.path.join(os.path.dirname(relative_to), path)
    return beside if not os.path.exists(path) and os.path.exists(beside) else path


def searched_places(path: str, relative_to: str | os.PathLike[str]) -> str:
    """Return in words where ``resolve_path`` has searched."""
    beside = os.path.join(os.path.dirname(relative_to), path)
    return "looked for " + " and ".join(dict.fromkeys(map(os.path.abspath, (path, beside))))


def _use_native_prefix(param: pb.SolverParameter) -> list[str]:
    prefix = native_prefix(param.snapshot_prefix)
    if prefix == param.snapshot_prefix:
        return []
    note = f'snapshot_prefix "{param.snapshot_prefix}" is read as "{prefix}"'
    param.snapshot_prefix = prefix
    return [note]


def _complete_snapshot_prefix(param: pb.SolverParameter, path: str) -> list[str]:
    """Set ``snapshot_prefix`` by Caffe's rule; return notes in Caffe's words."""
    if not param.HasField("snapshot_prefix"):
        param.snapshot_prefix = os.path.splitext(path)[0]
        return [f"snapshot_prefix was not specified and is set to {param.snapshot_prefix}"]
    if os.path.isdir(param.snapshot_prefix):
        param.snapshot_prefix = os.path.join(param.snapshot_prefix, Path(path).stem)
        return [f"snapshot_prefix was a directory and is replaced to {param.snapshot_prefix}"]
    if not param.snapshot_prefix and (param.snapshot or param.snapshot_after_train):
        return ["snapshot_prefix is empty: snapshots go to the current folder, as _iter_<N>.caffemodel and so on"]
    return []


def _without_tests(param: pb.SolverParameter) -> list[str]:
    """Return a note if tests have an interval but no batches; Caffe silently tests nothing."""
    if param.test_interval and not (param.test_iter or param.test_net or param.test_net_param):
        return [f"test_interval is {param.test_interval}, but there is no test_iter: nothing is tested"]
    return []
