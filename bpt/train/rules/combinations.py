"""Writes the page docs/combinations.md with the combinations that the strategies allow (``make combinations``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from google.protobuf import text_format

from bpt.base.violation import PARALLEL, Violation
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import BalanceSpec, InnerSpec, ParallelSpec, PipelineSpec, ReplicaSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource
from bpt.train.rules.violations import ignored_settings, violations

_Parallel, _Pipeline, _Inner = pb.ParallelParameter, pb.PipelineParameter, pb.InnerParameter
EXCHANGES = ("ALLREDUCE", "TREE", "RING", "CGDP", "LOCAL", "SGWU", "AGWU", "ASGD")
BALANCES = ("UNIFORM", "STATIC", "DYNAMIC", "IDPA")
TOPOLOGIES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "stages": {"num_stages": 2},
    "shards": {"num_shards": 2},
    "both": {"num_stages": 2, "num_shards": 2},
    "unlike": {"replica": (ReplicaSpec(), ReplicaSpec(num_stages=2))},
}
"""Words of the page → fields of ParallelSpec."""
_STAGES = {"stages": "ranks", "both": "shards", "unlike": "unlike replicas"}
INNER = ("LIBRARY", "TASK_DAG")
SCHEDULES = ("GPIPE", "SEQUENTIAL", "ONE_F_ONE_B", "ZERO_BUBBLE", "DELAYED")

SETTINGS: Mapping[str, tuple[str, str]] = {
    "fc_param { pieces: 2 }": ("num_shards: 2", "parallel.md#pieces-blobs-that-travel-while-others-multiply"),
    "pipeline_param { recompute: true }": ("num_stages: 2", "pipelines.md#recompute-less-memory-for-more-time"),
    "pipeline_param { schedule: DELAYED correction: NESTEROV }": (
        "num_stages: 2 cgdp_param { chunk_size: 1 }",
        "pipelines.md#delayed",
    ),
    "balance_param { by: ITERATION }": ("balance: DYNAMIC", "parallel.md#by-iteration-shares-that-see-the-exchange"),
    "balance_param { batch { rule: NOISE_SCALE max: 64 } }": (
        "",
        "parallel.md#batch-a-batch-that-follows-the-noise-of-the-gradients",
    ),
    "outer_param { type: NESTEROV }": ("", "outer.md#an-outer-optimizer"),
    "agwu_param { staleness: INVERSE }": ("", "outer.md#stale-submissions"),
    "agwu_param { local_updates: BY_SPEED }": ("", "outer.md#local-updates-by-speed"),
}
"""Further settings → what they need, and their guide."""

_HEAD = """\
# What combines with what

This page shows which values of `parallel_param` combine. `make combinations` writes it from the rules of `bpt train`
(`bpt/train/rules/violations.py`), with two stages and two shards where a run has some. ✓ means that the values combine.
A number refers to the first reason why they do not; the reasons are listed below the tables.

| word | meaning |
| --- | --- |
| plain | each rank has the whole net; with SGWU, AGWU and ASGD, each computing node |
| stages | the net is cut into a pipeline (`num_stages`) |
| shards | fully connected layers are split (`num_shards`) |
| both | each stage has several shards |
| unlike | a replica of one stage is beside one of two (`replica`) |
| DAG | `inner_param { engine: TASK_DAG }`; without it `LIBRARY` |

A net may refuse more. bpt names the layers that it cannot split, and those that need whole batches where [a batch would
be divided](parallel.md#what-is-divided). The ranks of a worker sum their gradients as `agwu_param { worker_exchange }`
says: ALLREDUCE, TREE, RING or CGDP. `.venv/bin/python scripts/bench combinations` trains with every combination. It
compares the synchronous ones and LOCAL with one process, to 1e-5 in double precision.
"""


class Combination(NamedTuple):
    """A combination of values of ``parallel_param``, by their names; ``topology`` is one of TOPOLOGIES."""

    exchange: str
    balance: str = "UNIFORM"
    topology: str = "plain"
    inner: str = "LIBRARY"
    schedule: str = "GPIPE"
    update: str = "REPLICATED"

    @property
    def plan(self) -> RunPlan:
        """A plan with this combination and default values."""
        optim = OptimSpec(
            base_lr=0.01, lr_policy="fixed", max_iter=1, given=frozenset(("base_lr", "lr_policy", "max_iter"))
        )
        parallel = ParallelSpec(
            **TOPOLOGIES[self.topology],
            exchange=_Parallel.Exchange.Value(self.exchange),
            balance=_Parallel.Balance.Value(self.balance),
            balance_param=BalanceSpec(profile="speeds.json" if self.balance == "STATIC" else ""),
            pipeline_param=PipelineSpec(schedule=_Pipeline.Schedule.Value(self.schedule)),
            inner_param=InnerSpec(engine=_Inner.Engine.Value(self.inner)),
            update=_Parallel.Update.Value(self.update),
        )
        return RunPlan(optim=optim, parallel_param=parallel)

    @property
    def violation(self) -> Violation | None:
        """The reason why such a run is impossible, or ``None`` if it is possible."""
        return next(iter(violations(self.plan)), None)


def plan_of_setting(setting: str, exchange: str) -> RunPlan:
    """Return a plan with one of SETTINGS and what it needs."""
    needs, _ = SETTINGS[setting]
    text = f'base_lr: 0.01 lr_policy: "fixed" max_iter: 1 {PARALLEL} {{ exchange: {exchange} {needs} {setting} }}'
    return resolve(SolverSource(text_format.Parse(text, pb.SolverParameter()), "", {}))


def has_effect(setting: str, plan: RunPlan) -> bool:
    """Return whether a plan reads one of SETTINGS."""
    param = setting.split(maxsplit=1)[0]
    return not any(each.field[:2] == (PARALLEL, param) for each in ignored_settings(plan))


def page() -> str:
    """Return the whole text of the page."""
    reasons: dict[Violation, dict[str, None]] = {}  # → the exchanges of which it is said, in order

    def cell(plan: RunPlan) -> str:
        violation = next(iter(violations(plan)), None)
        if violation is None:
            return "✓"
        reason = replace(violation, exchange="")
        reasons.setdefault(reason, {})[violation.exchange] = None
        return str(list(reasons).index(reason) + 1)

    columns = [(topology, inner) for topology in TOPOLOGIES for inner in INNER]
    head = ["exchange", "balance", *(topology + ", DAG" * (inner == "TASK_DAG") for topology, inner in columns)]
    rows = [
        [exchange, balance, *(cell(Combination(exchange, balance, *column).plan) for column in columns)]
        for exchange in EXCHANGES
        for balance in BALANCES
    ]
    pipelines = [(topology, inner) for topology in _STAGES for inner in INNER]
    schedule_head = ["schedule", "stages of", *EXCHANGES]
    schedules = [
        [
            schedule,
            f"{_STAGES[topology]}{', DAG' * (inner == 'TASK_DAG')}",
            *(cell(Combination(exchange, "UNIFORM", topology, inner, schedule).plan) for exchange in EXCHANGES),
        ]
        for schedule in SCHEDULES
        for topology, inner in pipelines
    ]
    lines = [_HEAD, *_table(head, rows), ""]
    lines += ["The orders of micro-batches in a pipeline (`pipeline_param { schedule }`):", ""]
    lines += [*_table(schedule_head, schedules), ""]
    updates = [
        [topology, *(cell(Combination(exchange, topology=topology, update="SHARDED").plan) for exchange in EXCHANGES)]
        for topology in TOPOLOGIES
    ]
    lines += ["An update that ranks [divide](sharded_update.md) (`update: SHARDED`; `HOST` combines alike):", ""]
    lines += [*_table(["ranks of", *EXCHANGES], updates), ""]
    settings = [
        [
            f"[`{setting}`]({guide}){f' with `{needs}`' if needs else ''}",
            *(
                "–" if shown == "✓" and not has_effect(setting, plan) else shown
                for plan in (plan_of_setting(setting, exchange) for exchange in EXCHANGES)
                for shown in [cell(plan)]
            ),
        ]
        for setting, (needs, guide) in SETTINGS.items()
    ]
    lines += ["Further settings. A dash means that a setting has no effect, which the log says:", ""]
    lines += [*_table(["setting", *EXCHANGES], settings), "", "## Why not", ""]
    for number, (reason, exchanges) in enumerate(reasons.items(), 1):
        *others, last = exchanges
        named = f"{', '.join(others)} or {last}" if others else last
        lines.append(f"{number}. {replace(reason, exchange=named).words}")
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print(page(), end="")
