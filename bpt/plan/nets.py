"""Which nets a solver trains and tests: the fields net, train_net, test_net and their ``_param`` variants."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from bpt.errors import PrototxtError
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.source import layer_specs
from bpt.graph.spec import Shape
from bpt.graph.state import make_state
from bpt.layers import LAYERS
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import NetSource, SolverSource, read_net, resolve_path

LOG = logging.getLogger("bpt")

TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class NetPlan:
    """A net that a solver will build: its text, the state it is filtered by, and where it came from."""

    source: NetSource
    state: pb.NetState
    described_by: str  # "net file: lenet.prototxt", as Caffe's log says it

    def graph(self, input_shapes: Mapping[str, Shape] | None = None) -> LayerGraph:
        """The net's graph; ``input_shapes`` replace those of Input layers, by blob name.

        Raises:
            PrototxtError: the net is wrong, or no layer of it belongs to the state.
        """
        param = self.source.param
        graph = build_graph(
            param.name,
            layer_specs(param, self.source.origins),
            LAYERS,
            self.state,
            force_backward=param.force_backward,
            debug_info=param.debug_info,
            input_shapes=input_shapes,
            source=self.source.path,
        )
        if not param.layer:
            raise PrototxtError("the net is empty: its text has no layer", self.source.origin())
        if not len(graph):
            raise PrototxtError(f"the net has no layer for {_show(self.state)}", self.source.origin())
        return graph


def file_plan(path: str, phase: int, level: int = 0, stages: tuple[str, ...] = ()) -> NetPlan:
    """The net of a network file in the given phase and level, in ``stages`` and those of the file's own ``state``.

    What was upgraded in it is logged.
    """
    source = read_net(path)
    for note in source.notes:
        LOG.info("%s", note)
    state = make_state(phase, level, (*source.param.state.stage, *stages))
    return NetPlan(source, state, f"net file: {path}")


def train_plan(solver: SolverSource) -> NetPlan:
    """The net to train.

    Raises:
        PrototxtError: not exactly one of the four fields is set.
    """
    param = solver.param
    given = [field for field in TRAIN_FIELDS if param.HasField(field) and getattr(param, field) != ""]
    if len(given) != 1:
        found = "none of them is set" if not given else f"{' and '.join(given)} are set"
        raise PrototxtError(
            f"name the net to train by one of {', '.join(TRAIN_FIELDS)}: {found}",
            solver.origin(given[-1]) if given else solver.origin(),
        )
    source, words = _source(solver, given[0])
    return NetPlan(source, _state(source, pb.TRAIN, param.train_state), words)


def test_plans(solver: SolverSource) -> tuple[NetPlan, ...]:
    """The nets to test, in order: test_net_param, test_net, then ``net`` for each further test_iter.

    Raises:
        PrototxtError: test_iter, test_state or test_interval do not fit the number of test nets.
    """
    param = solver.param
    own = [("test_net_param", i) for i in range(len(param.test_net_param))]
    own += [("test_net", i) for i in range(len(param.test_net))]
    generic = [field for field in ("net_param", "net") if param.HasField(field)]
    wanted = len(param.test_iter)
    if wanted < len(own) or (wanted > len(own) and not generic):
        raise PrototxtError(
            f"test_iter must be given once for each test net: {len(own)} wanted, {wanted} given",
            solver.origin("test_iter"),
        )
    fields: list[tuple[str, int | None]] = [*own, *[(generic[0], None) for _ in range(wanted - len(own))]]
    if param.test_state and len(param.test_state) != len(fields):
        raise PrototxtError(
            f"test_state must be given once for each test net: {len(fields)} wanted, {len(param.test_state)} given",
            solver.origin("test_state"),
        )
    if fields and param.test_interval <= 0:
        raise PrototxtError(
            "test_iter asks for testing, but test_interval is 0: every how many iterations?",
            solver.origin("test_iter"),
        )
    plans = []
    for number, (field, index) in enumerate(fields):
        source, words = _source(solver, field, index)
        own_state = param.test_state[number] if param.test_state else pb.NetState()
        plans.append(NetPlan(source, _state(source, pb.TEST, own_state), words))
    return tuple(plans)


def _source(solver: SolverSource, field: str, index: int | None = None) -> tuple[NetSource, str]:
    """The text that ``field`` names or holds, and Caffe's words for it."""
    value = getattr(solver.param, field)
    if index is not None:
        value = value[index]
    if isinstance(value, str):
        path = resolve_path(value, solver.path)
        try:
            return read_net(path), f"{field} file: {value}"
        except PrototxtError as error:
            if os.path.lexists(path):
                raise
            # Neither from the current folder nor beside the solver.
            raise PrototxtError(f"{error} (looked for {os.path.abspath(path)})", solver.origin(field)) from None
    prefix = (field,) if index is None else (field, index)
    origins = {path[len(prefix) :]: origin for path, origin in solver.origins.items() if path[: len(prefix)] == prefix}
    return NetSource(value, solver.path, origins), field


def _state(source: NetSource, phase: int, own: pb.NetState) -> pb.NetState:
    """Caffe's order: the phase, then the net's own state, then the solver's."""
    state = pb.NetState()
    state.phase = phase  # type: ignore[assignment]
    state.MergeFrom(source.param.state)
    state.MergeFrom(own)
    return state


def _show(state: pb.NetState) -> str:
    parts = [f"phase {pb.Phase.Name(state.phase)}"]
    parts += [f"level {state.level}"] if state.level else []
    parts += [f"stage {', '.join(state.stage)}"] if state.stage else []
    return " and ".join(parts)
