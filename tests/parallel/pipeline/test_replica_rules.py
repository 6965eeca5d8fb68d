"""Replicas that are not alike: what combines with them, and what is refused at its field."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.plan.resolve import plan_of
from bpt.parallel.pipeline.replica_rules import violations_of_net
from bpt.train.rules.violations import violations_in_step, violations_of_ranks
from tests.support.golden_cases import graph_of
from tests.support.rule_checks import solver
from tests.support.small_forecasts import BRANCHES, NORM

UNLIKE = "replica { } replica { num_stages: 2 }"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (UNLIKE, []),
        (f"{UNLIKE} balance: DYNAMIC sync_batch_norm: true pipeline_param {{ schedule: ONE_F_ONE_B }}", []),
        ("replica { ranks: 2 } replica { ranks: 2 } exchange: RING", []),  # alike
        ("replica { ranks: 0 }", [("replica", 0, "ranks")]),
        ("replica { num_stages: 0 }", [("replica", 0, "num_stages")]),
        (f"{UNLIKE} replica {{ ranks: -2 num_stages: 2 }}", [("replica", 2, "ranks")]),
        (f"{UNLIKE} replica {{ ranks: 3 num_stages: 2 }}", [("replica", 2, "ranks")]),
        (f"{UNLIKE} num_stages: 2", [("num_stages",)]),
        (f"{UNLIKE} num_shards: 2", [("num_shards",)]),
        (f"{UNLIKE} exchange: RING", [("exchange",)]),
        (f"{UNLIKE} exchange: LOCAL", [("exchange",)]),
        (f"{UNLIKE} compression_param {{ codec: BF16 }}", [("compression_param", "codec")]),
        (f"{UNLIKE} balance: DYNAMIC balance_param {{ by: ITERATION }}", [("balance_param", "by")]),
        (f"{UNLIKE} balance_param {{ batch {{ rule: NOISE_SCALE max: 64 }} }}", [("balance_param", "batch", "rule")]),
        (f"{UNLIKE} update: SHARDED", []),
        (f"{UNLIKE} transport: TORCH_DISTRIBUTED", [("transport",)]),
        (f"{UNLIKE} pipeline_param {{ schedule: DELAYED }}", [("pipeline_param", "schedule")]),
        (f"{UNLIKE} pipeline_param {{ allocator: GABRA }}", [("pipeline_param", "allocator")]),
        (f"{UNLIKE} pipeline_param {{ capacity: 1 capacity: 1 }}", [("pipeline_param", "capacity")]),
        (f"{UNLIKE} pipeline_param {{ devices: 'd' partitions: 4 }}", [("pipeline_param", "devices"),
                                                                        ("pipeline_param", "partitions")]),
        (f"{UNLIKE} fault_param {{ spares: 1 }}", [("fault_param", "spares")]),
    ],
)  # fmt: skip
def test_fields(text: str, fields: list[tuple[str | int, ...]], tmp_path: Path) -> None:
    found = violations_in_step(solver(tmp_path, f"parallel_param {{ {text} }}"))
    assert [violation.field for violation in found] == [("parallel_param", *field) for field in fields]


@pytest.mark.parametrize(("ranks", "refused"), [(3, False), (2, True), (6, True)])
def test_as_many_ranks_as_the_replicas_have(ranks: int, refused: bool, tmp_path: Path) -> None:
    plan = solver(tmp_path, f"parallel_param {{ {UNLIKE} }}")
    assert [v.field for v in violations_of_ranks(plan, ranks)] == [("parallel_param", "replica")] * refused


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("sync_batch_norm: true", True),
        ("", False),
        ("sync_batch_norm: true pipeline_param { batch_norm_over: BATCH }", False),
        ("sync_batch_norm: true pipeline_param { micro_batches: 1 }", False),
    ],
)
def test_a_layer_that_normalises_micro_batches_of_all_replicas(more: str, refused: bool, tmp_path: Path) -> None:
    plan = solver(tmp_path, f"parallel_param {{ {UNLIKE} {more} }}")
    graph = graph_of(BRANCHES.replace("NORM", NORM))
    assert [v.layer for v in violations_of_net(plan_of(plan), graph)] == ["norm"] * refused
