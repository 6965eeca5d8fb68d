"""The part of a plan that ``auto: true`` and ``bpt plan --auto`` choose: as a message, as text, and back."""

from __future__ import annotations

from dataclasses import replace

from bpt.base.violation import PARALLEL
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text
from bpt.config.schema_specs import fill_spec

REPLICA = "replica"
FIELDS = ("num_stages", "num_shards", "exchange", "update", "balance", REPLICA)
PIPELINE = "pipeline_param"
OF_PIPELINES = ("schedule", "micro_batches", "batch_norm_over")


def chosen_of(parallel: ParallelSpec) -> pb.ParallelParameter:
    """Return the choosable values that are not the defaults."""
    return _differing(ParallelSpec(), parallel)


def with_chosen(plan: RunPlan, chosen: pb.ParallelParameter) -> RunPlan:
    """Return the plan with these values for all fields that its text does not set."""
    spec, param = fill_spec(ParallelSpec, chosen), plan.parallel_param.pipeline_param
    values = {name: getattr(spec, name) for name in FIELDS if not plan.given(PARALLEL, name)}
    if spec.depth > 1:
        open_ones = [name for name in OF_PIPELINES if not plan.given(PARALLEL, PIPELINE, name)]
        param = replace(param, **{name: getattr(chosen.pipeline_param, name) for name in open_ones})
    return plan.with_parallel(pipeline_param=param, **values)


def change_of(old: ParallelSpec, new: ParallelSpec) -> str:
    """Return the solver settings, including defaults, that change ``old`` into ``new``, in a line."""
    return _in_a_line(_differing(old, new))


def text_of(plan: RunPlan) -> str:
    """Return the solver settings with the values of ``plan``, in a line."""
    return _in_a_line(chosen_of(plan.parallel_param))


def _differing(old: ParallelSpec, new: ParallelSpec) -> pb.ParallelParameter:
    found = pb.ParallelParameter()
    for name in FIELDS:
        if (value := getattr(new, name)) != getattr(old, name) and name != REPLICA:
            setattr(found, name, value)
    for replica in new.replica if new.replica != old.replica else ():
        found.replica.add(ranks=replica.ranks, num_stages=replica.num_stages if replica.num_stages > 1 else None)
    if new.depth > 1:
        for name in OF_PIPELINES:
            if (value := getattr(new.pipeline_param, name)) != getattr(old.pipeline_param, name):
                setattr(found.pipeline_param, name, value)
    return found


def _in_a_line(param: pb.ParallelParameter) -> str:
    inside = " ".join(to_text(param).split())
    return f"parallel_param {{ {inside} }}" if inside else "parallel_param { }"
