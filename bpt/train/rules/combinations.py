"""Writes the page docs/combinations.md with the combinations that the strategies allow (``make combinations``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bpt.base.violation import Violation
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.run_plan import BalanceSpec, InnerSpec, ParallelSpec, PipelineSpec, ReplicaSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.rules.violations import violations

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


def page() -> str:
    """Return the whole text of the page."""
    reasons: dict[Violation, dict[str, None]] = {}  # → the exchanges of which it is said, in order

    def cell(combination: Combination) -> str:
        violation = combination.violation
        if violation is None:
            return "✓"
        reason = replace(violation, exchange="")
        reasons.setdefault(reason, {})[violation.exchange] = None
        return str(list(reasons).index(reason) + 1)

    columns = [(topology, inner) for topology in TOPOLOGIES for inner in INNER]
    head = ["exchange", "balance", *(topology + ", DAG" * (inner == "TASK_DAG") for topology, inner in columns)]
    rows = [
        [exchange, balance, *(cell(Combination(exchange, balance, *column)) for column in columns)]
        for exchange in EXCHANGES
        for balance in BALANCES
    ]
    pipelines = [(topology, inner) for topology in _STAGES for inner in INNER]
    schedule_head = ["schedule", "stages of", *EXCHANGES]
    schedules = [
        [
            schedule,
            f"{_STAGES[topology]}{', DAG' * (inner == 'TASK_DAG')}",
            *(cell(Combination(exchange, "UNIFORM", topology, inner, schedule)) for exchange in EXCHANGES),
        ]
        for schedule in SCHEDULES
        for topology, inner in pipelines
    ]
    lines = [_HEAD, *_table(head, rows), ""]
    lines += ["The orders of micro-batches in a pipeline (`pipeline_param { schedule }`):", ""]
    lines += [*_table(schedule_head, schedules), ""]
    updates = [
        [topology, *(cell(Combination(exchange, topology=topology, update="SHARDED")) for exchange in EXCHANGES)]
        for topology in TOPOLOGIES
    ]
    lines += ["An update that ranks [divide](sharded_update.md) (`update: SHARDED`; `HOST` combines alike):", ""]
    lines += [*_table(["ranks of", *EXCHANGES], updates), "", "## Why not", ""]
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
