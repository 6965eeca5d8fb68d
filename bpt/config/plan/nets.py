"""The nets that a solver trains and tests: the fields net, train_net, test_net and their ``_param`` variants."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bpt.base.errors import PrototxtError
from bpt.base.origin import FieldPath, Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import NetSource, net_source, read_net, resolve_path, searched_places

LOG = logging.getLogger("bpt")

TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class NetFields:
    """The fields of a solver that name or contain its nets; ``None`` and () mean not set."""

    net: str | None = None
    net_param: pb.NetParameter | None = None
    train_net: str | None = None
    train_net_param: pb.NetParameter | None = None
    train_state: pb.NetState | None = None
    test_net: tuple[str, ...] = ()
    test_net_param: tuple[pb.NetParameter, ...] = ()
    test_state: tuple[pb.NetState, ...] = ()


@dataclass(frozen=True)
class NetPlan:
    """The plan of a net to build: its text, the state it is filtered by, and its source."""

    source: NetSource
    state: pb.NetState
    described_by: str  # "net file: lenet.prototxt", as Caffe's log says it


class SolverNets(Protocol):
    """The part of a solver's plan with the nets to train and test; RunPlan implements it."""

    @property
    def nets(self) -> NetFields:
        """The fields that name or contain nets."""

    @property
    def path(self) -> str:
        """The path of the solver's file; "" if there is none."""

    @property
    def origins(self) -> Mapping[FieldPath, Origin]:
        """The place of each field of the text."""

    @property
    def test_iter(self) -> Sequence[int]:
        """The number of batches of each test net."""

    @property
    def test_interval(self) -> int:
        """The number of iterations between tests; 0 if there are none."""

    def origin(self, *field: str | int) -> Origin | None:
        """Return the place of a field; without arguments, that of the text."""


def make_state(phase: int, level: int = 0, stages: Sequence[str] = ()) -> pb.NetState:
    """Return a NetState of ``phase`` (``pb.TRAIN`` or ``pb.TEST``), ``level`` and ``stages``."""
    state = pb.NetState(level=level, stage=stages)
    state.phase = phase  # type: ignore[assignment]
    return state


def file_plan(path: str, phase: int, level: int = 0, stages: tuple[str, ...] = ()) -> NetPlan:
    """Return the plan of a network file in a phase, a level, and ``stages`` plus those of the file's own ``state``.

    It logs what was upgraded in the file.
    """
    source = read_net(path)
    for note in source.notes:
        LOG.info("%s", note)
    state = make_state(phase, level, (*source.param.state.stage, *stages))
    return NetPlan(source, state, f"net file: {path}")


def train_plan(plan: SolverNets) -> NetPlan:
    """Return the plan of the net to train.

    Raises:
        PrototxtError: not exactly one of the four fields is set.
    """
    given = [field for field in TRAIN_FIELDS if getattr(plan.nets, field) not in (None, "")]
    if len(given) != 1:
        found = "none of them is set" if not given else f"{' and '.join(given)} are set"
        raise PrototxtError(
            f"name the net to train by one of {', '.join(TRAIN_FIELDS)}: {found}",
            plan.origin(given[-1]) if given else plan.origin(),
        )
    source, words = _source(plan, given[0])
    return NetPlan(source, _state(source, pb.TRAIN, plan.nets.train_state or pb.NetState()), words)


def test_plans(plan: SolverNets) -> tuple[NetPlan, ...]:
    """Return the plans of the nets to test, in order: test_net_param, test_net, then ``net`` for further test_iter.

    Raises:
        PrototxtError: test_iter, test_state or test_interval do not fit the number of test nets.
    """
    nets = plan.nets
    own = [("test_net_param", i) for i in range(len(nets.test_net_param))]
    own += [("test_net", i) for i in range(len(nets.test_net))]
    generic = [field for field in ("net_param", "net") if getattr(nets, field) is not None]
    wanted = len(plan.test_iter)
    if wanted < len(own) or (wanted > len(own) and not generic):
        raise PrototxtError(
            f"test_iter must be given once for each test net: {len(own)} wanted, {wanted} given",
            plan.origin("test_iter"),
        )
    fields: list[tuple[str, int | None]] = [*own, *[(generic[0], None) for _ in range(wanted - len(own))]]
    if nets.test_state and len(nets.test_state) != len(fields):
        raise PrototxtError(
            f"test_state must be given once for each test net: {len(fields)} wanted, {len(nets.test_state)} given",
            plan.origin("test_state"),
        )
    if any(plan.test_iter) and plan.test_interval <= 0:
        raise PrototxtError(
            "test_iter asks for tests, but test_interval is 0; set it to the iterations between tests",
            plan.origin("test_iter"),
        )
    found = []
    for number, (field, index) in enumerate(fields):
        source, words = _source(plan, field, index)
        own_state = nets.test_state[number] if nets.test_state else pb.NetState()
        found.append(NetPlan(source, _state(source, pb.TEST, own_state), words))
    return tuple(found)


def _source(plan: SolverNets, field: str, index: int | None = None) -> tuple[NetSource, str]:
    """Return the text that ``field`` names or contains, and Caffe's words for it."""
    value = getattr(plan.nets, field)
    if index is not None:
        value = value[index]
    if isinstance(value, str):
        path = resolve_path(value, plan.path)
        try:
            return read_net(path), f"{field} file: {value}"
        except PrototxtError as error:
            if os.path.lexists(path):
                raise
            # The file is neither in the current folder nor beside the solver.
            raise PrototxtError(f"{error} ({searched_places(value, plan.path)})", plan.origin(field)) from None
    prefix = (field,) if index is None else (field, index)
    origins = {path[len(prefix) :]: origin for path, origin in plan.origins.items() if path[: len(prefix)] == prefix}
    return net_source(value, plan.path, origins), field


def _state(source: NetSource, phase: int, own: pb.NetState) -> pb.NetState:
    """Return the net state in Caffe's order: the phase, then the net's own state, then the solver's."""
    state = pb.NetState()
    state.phase = phase  # type: ignore[assignment]
    state.MergeFrom(source.param.state)
    state.MergeFrom(own)
    return state
