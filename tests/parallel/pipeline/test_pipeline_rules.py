"""Pipelines that contradict themselves, or what they are combined with, are refused at the field that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.parallel.pipeline.pipeline_rules import violations_of_net
from bpt.train.rules.violations import ignored_settings, violations
from tests.support.golden_cases import graph_of
from tests.support.rule_checks import check, solver
from tests.support.small_solver import NET
from tests.support.training import solver_of

STAGES = "num_stages: 2"
DELAYED = "pipeline_param { schedule: DELAYED }"


def place_of(text: str) -> str:
    """The mark's place as messages show it."""
    before = text[: text.index("§")]
    return f"solver.prototxt:1:{len(before) + 1}: "


@pytest.mark.parametrize(
    "more",
    [
        "parallel_param { num_stages: 4 }",
        "parallel_param { num_stages: 2 pipeline_param { micro_batches: 1 partitions: 2 allocator: GABRA "
        "gabra_param { population: 2 generations: 0 crossover: 1 } } }",
        "iter_size: 3 clip_gradients: 1 parallel_param { num_stages: 2 exchange: TREE sync_batch_norm: true }",
        "parallel_param { num_stages: 2 exchange: CGDP }",
        "parallel_param { num_stages: 2 num_shards: 2 inner_param { engine: TASK_DAG } }",
        "parallel_param { num_stages: 2 balance: STATIC balance_param { profile: 'speeds.json' } }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED } inner_param { engine: TASK_DAG } }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED } exchange: RING num_shards: 3 }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED allocator: MANUAL } }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED allocator: GABRA } }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: DELAYED allocator: EXACT } exchange: RING }",
        "parallel_param { num_stages: 2 pipeline_param { schedule: ZERO_BUBBLE recompute: true } exchange: TREE }",
        "parallel_param { num_stages: 2 num_shards: 2 pipeline_param { schedule: DELAYED recompute: true } }",
        "debug_info: true parallel_param { num_stages: 1 pipeline_param { micro_batches: 0 } }",  # not read
    ],
)
def test_what_can_be_run_passes(more: str, tmp_path: Path) -> None:
    check(solver(tmp_path, more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ §micro_batches: 0 }} }}",
            "pipeline_param: micro_batches is 0; it must be at least 1",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ §partitions: -1 }} }}",
            "pipeline_param: partitions is -1; it must be at least 0",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ gabra_param {{ §population: 1 }} }} }}",
            "gabra_param: population is 1; it must be at least 2",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ gabra_param {{ §generations: -1 }} }} }}",
            "gabra_param: generations is -1; it must be at least 0",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ gabra_param {{ §seed: -1 }} }} }}",
            "gabra_param: seed is -1; it must be at least 0",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ gabra_param {{ §crossover: 1.5 }} }} }}",
            "gabra_param: crossover is 1.5; it must be from 0 to 1",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ gabra_param {{ §crossover: nan }} }} }}",
            "gabra_param: crossover is nan; it must be finite",
        ),
        (
            "parallel_param { num_stages: 3 pipeline_param { §partitions: 2 } }",
            "pipeline_param: partitions: 2 are too few for num_stages: 3: every stage runs one at least",
        ),
        (
            f"parallel_param {{ {STAGES} exchange: CGDP cgdp_param {{ §chunking: MODEL }} }}",
            "cgdp_param: chunking: MODEL measures all layers on each rank, which has some of them",
        ),
        (
            f"§debug_info: true parallel_param {{ {STAGES} }}",
            "debug_info: true looks at every layer, and with num_stages: 2 no rank has them all",
        ),
        (
            f"§iter_size: 2 parallel_param {{ {STAGES} {DELAYED} }}",
            "pipeline_param: schedule: DELAYED applies the gradient of one batch at a time; iter_size is 2, set 1",
        ),
        (
            f"§clip_gradients: 3 parallel_param {{ {STAGES} {DELAYED} }}",
            "pipeline_param: schedule: DELAYED updates stages with gradients of different iterations, which have no",
        ),
        (
            f"parallel_param {{ {STAGES} {DELAYED} exchange: CGDP §cgdp_param {{ step: 1 }} }}",
            "pipeline_param: schedule: DELAYED has batches under way when a search for chunks would cut the net anew",
        ),
        (
            f"parallel_param {{ {STAGES} {DELAYED} §exchange: TREE }}",
            "pipeline_param: schedule: DELAYED goes with exchange: ALLREDUCE, RING or CGDP, not TREE",
        ),
        (
            f"parallel_param {{ {STAGES} pipeline_param {{ schedule: ZERO_BUBBLE }} inner_param {{ §engine: AUTO }} }}",
            "inner_param: engine: AUTO computes the gradients of a layer's inputs and weights in one DAG",
        ),
        (
            f"type: 'Adam' parallel_param {{ {STAGES} pipeline_param {{ schedule: DELAYED §correction: NESTEROV }} }}",
            "pipeline_param: correction: NESTEROV looks ahead along the momentum of SGD",
        ),
        ("parallel_param { §num_stages: 0 }", "parallel_param: num_stages is 0; it must be at least 1"),
    ],
)
def test_what_is_refused(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(solver(tmp_path, more.replace("§", "")))
    assert f"{place_of(more)}{message}" in str(caught.value)


@pytest.mark.parametrize(
    ("parallel", "stage", "remarks"),
    [
        ("num_stages: 2 pipeline_param { micro_batches: 8 }", "", []),
        ("num_stages: 2 pipeline_param { allocator: GABRA partitions: 3 gabra_param { seed: 1 } }", "", []),
        ("num_stages: 2 pipeline_param { allocator: MANUAL }", "stage: 1", []),
        ("num_stages: 2 pipeline_param { schedule: DELAYED micro_batches: 8 }", "", ["micro_batches"]),
        ("num_stages: 2 pipeline_param { schedule: DELAYED correction: NESTEROV }", "", []),
        ("num_stages: 2 pipeline_param { correction: NESTEROV }", "", ["correction"]),
        ("num_stages: 2 pipeline_param { partition_by: CONV_BLOCKS }", "", []),
        ("num_stages: 2 pipeline_param { allocator: MANUAL partition_by: CONV_BLOCKS }", "stage: 1", ["partition_by"]),
        (
            "num_stages: 2 pipeline_param { partitions: 3 objective: PROFIT gabra_param { seed: 1 } }",
            "",
            ["partitions", "objective", "gabra_param"],
        ),
        ("num_stages: 2 pipeline_param { allocator: EXACT gabra_param { seed: 1 } }", "", ["gabra_param"]),
        ("num_stages: 2", "stage: 1", ["{ stage } has no effect without pipeline_param { allocator: MANUAL }"]),
        ("", "stage: 1", ["{ stage } has no effect without num_stages above 1"]),
    ],
)
def test_what_has_no_effect_is_told(parallel: str, stage: str, remarks: list[str]) -> None:
    graph = graph_of(NET.replace('name: "ip"', f'name: "ip" parallel_param {{ {stage} }}'))
    told = [str(each) for each in ignored_settings(solver_of(f"parallel_param {{ {parallel} }}"), graph=graph)]
    assert len(told) == len(remarks)
    assert all(remark in line for remark, line in zip(remarks, told, strict=True))


def test_a_layer_that_cannot_run_forward_again(tmp_path: Path) -> None:
    writes = (
        NET + 'layer { name: "out" type: "HDF5Output" bottom: "x" bottom: "y" hdf5_output_param { file_name: "o" } }'
    )
    plan = solver_of(f"parallel_param {{ {STAGES} pipeline_param {{ recompute: true }} }}")
    (found,) = violations_of_net(plan, graph_of(writes))
    assert (found.layer, found.field[-1]) == ("out", "recompute")
    assert not list(violations_of_net(solver_of(f"parallel_param {{ {STAGES} }}"), graph_of(writes)))


def test_a_server_that_updates_corrects_nothing() -> None:
    inside = "schedule: DELAYED correction: NESTEROV"
    plan = solver_of(f"parallel_param {{ {STAGES} exchange: ASGD pipeline_param {{ {inside} }} }}")
    assert [found.field[-1] for found in violations(plan) if found.field[1:2] == ("pipeline_param",)] == ["correction"]
