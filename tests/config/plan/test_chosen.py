"""What auto: true may choose: as text, and put into a plan whose own settings stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.plan.chosen import change_of, chosen_of, text_of, with_chosen
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.rules.violations import violations_in_step
from tests.support.small_solver import small_solver

PIPELINE = "num_stages: 2 exchange: RING pipeline_param { schedule: ONE_F_ONE_B micro_batches: 8 }"


@pytest.mark.parametrize("text", ["", "exchange: CGDP balance: DYNAMIC", "num_shards: 2", PIPELINE])
def test_a_choice_is_the_plan_of_its_text(tmp_path: Path, text: str) -> None:
    written = small_solver(tmp_path, f"parallel_param {{ {text} }}")
    chosen = with_chosen(small_solver(tmp_path), chosen_of(written.parallel_param))
    assert chosen.parallel_param == written.parallel_param
    again = small_solver(tmp_path, text_of(chosen))
    assert again.parallel_param == written.parallel_param


def test_what_is_set_stands(tmp_path: Path) -> None:
    own = "auto: true exchange: ALLREDUCE num_stages: 2 pipeline_param { micro_batches: 2 }"
    plan = small_solver(tmp_path, f"parallel_param {{ {own} }}")
    found = with_chosen(plan, chosen_of(small_solver(tmp_path, f"parallel_param {{ {PIPELINE} }}").parallel_param))
    parallel, param = found.parallel_param, found.parallel_param.pipeline_param
    assert (parallel.exchange, param.micro_batches) == (pb.ParallelParameter.ALLREDUCE, 2)
    assert param.schedule == pb.PipelineParameter.ONE_F_ONE_B
    assert parallel.auto


def test_the_outer_layer_is_for_who_asks_for_it(tmp_path: Path) -> None:
    plan = small_solver(tmp_path, "parallel_param { auto: true exchange: AGWU }")
    assert "auto: true chooses among what goes in step" in " ".join(each.message for each in violations_in_step(plan))


def test_what_another_choice_changes(tmp_path: Path) -> None:
    """Defaults have to be said, too."""
    piped, dynamic = (
        small_solver(tmp_path, f"parallel_param {{ {text} }}").parallel_param
        for text in (PIPELINE, "exchange: RING balance: DYNAMIC")
    )
    assert change_of(piped, dynamic) == "parallel_param { num_stages: 1 balance: DYNAMIC }"
    assert change_of(dynamic, piped) == (
        "parallel_param { num_stages: 2 balance: UNIFORM pipeline_param { schedule: ONE_F_ONE_B micro_batches: 8 } }"
    )
