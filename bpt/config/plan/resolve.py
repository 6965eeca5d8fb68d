"""Make a RunPlan from a solver's text, which is not read again afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from google.protobuf.message import Message

from bpt.base.origin import FieldPath
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.nets import NetFields
from bpt.config.plan.run_plan import RunPlan
from bpt.config.plan.shared_solver import relevant_solver
from bpt.config.precision import precision_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource, read_solver
from bpt.config.proto.text import to_text
from bpt.config.schema_specs import SPECS, fill_spec


def resolve(
    source: SolverSource, weights: Sequence[str] = (), level: int = 0, stages: Sequence[str] | None = None
) -> RunPlan:
    """Return the plan of ``source`` with all defaults filled in.

    This reads no files that the text names, and checks nothing; ``bpt.train.rules.violations`` does that. The other
    arguments, from flags of the command line, override the text.

    Args:
        source: the parsed solver.
        weights: replace the text's weights, if there are any.
        level: the level of the training net's state, if it is not 0.
        stages: further stages of the same state; an empty list sets an empty state, as in replay logs.
    """
    param = pb.SolverParameter()
    param.CopyFrom(source.param)
    if weights:
        param.weights[:] = weights
    if level:
        param.train_state.level = level
    if stages is not None:
        param.train_state.stage.extend(stages)
    return fill_spec(
        RunPlan,
        param,
        nets=fill_spec(NetFields, param, **{name: None for name in _ABSENT if not param.HasField(name)}),
        optim=fill_spec(OptimSpec, param, given=frozenset(field.name for field, _ in param.ListFields())),
        asked_precision=precision_of(param),
        path=source.path,
        origins=source.origins,
        set_fields=frozenset(_set_fields(param)),
        notes=source.notes,
        text=to_text(param).rstrip(),
        shared_text=to_text(relevant_solver(param)),
    )


_ABSENT = ("net", "net_param", "train_net", "train_net_param", "train_state")


def read_plan(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunPlan:
    """Return the plan of the solver at ``path``, with ``overrides`` (the texts of ``--set``) applied."""
    return resolve(read_solver(path, overrides))


def plan_of(run: SolverSource | RunPlan) -> RunPlan:
    """Return ``run`` itself, or the plan of a text."""
    return run if isinstance(run, RunPlan) else resolve(run)


def _set_fields(message: Message, within: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of all fields that are set, without nets."""
    for descriptor, value in message.ListFields():
        way = (*within, descriptor.name)
        yield way
        if isinstance(value, Message) and value.DESCRIPTOR.name in SPECS:
            yield from _set_fields(value, way)
