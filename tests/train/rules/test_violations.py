"""A solver whose numbers make no sense is refused before anything is built, at the field that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.config.plan.resolve import read_plan
from bpt.train.rules.violations import violations
from tests.support.rule_checks import check, solver


@pytest.mark.parametrize(
    "more",
    [
        "",
        "display: 0 snapshot: 0 test_interval: 0 random_seed: -1",  # off, or not set
        "iter_size: 4 average_loss: 20 test_iter: 1 test_iter: 5 test_interval: 3 clip_gradients: 35",
        "parallel_param { }",
        # With one process there is one replica, which trains the whole batch, and no pipeline.
        "parallel_param { num_stages: 1 num_shards: 1 exchange: ALLREDUCE balance: UNIFORM batch_scope: REPLICA }",
        "parallel_param { pipeline_param { micro_batches: 8 } inner_param { engine: LIBRARY num_threads: 0 } }",
    ],
)
def test_what_can_be_run_passes(more: str, tmp_path: Path) -> None:
    check(solver(tmp_path, more))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("max_iter: -1", "max_iter is -1; it must be at least 0"),
        ("display: -1", "display is -1; it must be at least 0"),
        ("average_loss: 0", "average_loss is 0; it must be at least 1"),
        ("iter_size: 0", "iter_size is 0; it must be at least 1"),
        ("snapshot: -5", "snapshot is -5; it must be at least 0"),
        ("test_interval: -5", "test_interval is -5; it must be at least 0"),
        ("device_id: -1", "device_id is -1; it must be at least 0"),
        ("base_lr: inf", "base_lr is inf; it must be finite"),
        ("weight_decay: nan", "weight_decay is nan; it must be finite"),
        ("momentum: -inf", "momentum is -inf; it must be finite"),
        ("clip_gradients: nan", "clip_gradients is nan; it must be finite"),
        ("parallel_param { num_shards: -1 }", "parallel_param: num_shards is -1; it must be at least 1"),
    ],
)
def test_what_cannot_is_refused(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(solver(tmp_path, more))
    column = max(more.find("num_shards"), 0) + 1
    assert str(caught.value) == f"{tmp_path}/solver.prototxt:1:{column}: {message}"


def test_max_iter_must_be_said(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text('base_lr: 0.1 lr_policy: "fixed"')
    with pytest.raises(PrototxtError, match="max_iter is not set: how many iterations to train"):
        check(read_plan(path))


@pytest.mark.parametrize("iterations", ["0", "-2"])
def test_each_test_iter_has_its_place(iterations: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(solver(tmp_path, f"test_iter: 3 test_iter: {iterations} test_interval: 1"))
    assert str(caught.value) == (f"{tmp_path}/solver.prototxt:1:14: test_iter is {iterations}; it must be at least 1")


def test_what_is_wrong_in_a_message_names_it_at_its_own_line(tmp_path: Path) -> None:
    """Once all messages inside parallel_param were told as that one, and those of the solver not at all."""
    text = """\
parallel_param {
  num_stages: 2
  num_shards: 0
  pipeline_param {
    micro_batches: 0
    gabra_param {
      seed: -1
    }
  }
  cgdp_param {
    step: 0
  }
  compression_param {
    rank: 0
  }
  exchange: LOCAL
  local_param {
    steps: 0
  }
  fault_param {
    copies: 2
  }
  inner_param {
    num_threads: -1
  }
}
average_param {
  decay: 2
}
early_stopping_param {
  patience: 0
  output: "accuracy"
}
"""
    plan = solver(tmp_path, text)
    told = [str(found.error(plan.origin)).removeprefix(f"{tmp_path}/solver.prototxt:") for found in violations(plan)]
    assert told == [
        "3:3: parallel_param: num_shards is 0; it must be at least 1",
        "5:5: pipeline_param: micro_batches is 0; it must be at least 1",
        "7:7: gabra_param: seed is -1; it must be at least 0",
        "11:5: cgdp_param: step is 0; it must be at least 1",
        "14:5: compression_param: rank is 0; it must be at least 1",
        "18:5: local_param: steps is 0; it must be at least 1",
        "21:5: fault_param: copies: 2: a rank's state is copied to one other rank; set copies: 1",
        "24:5: inner_param: num_threads is -1; it must be at least 0 (0: the node's cores divided by its ranks)",
        "28:3: average_param: decay is 2; it must be at least 0 and below 1",
        "31:3: early_stopping_param: patience is 0; it must be at least 1",
        '32:3: early_stopping_param: output is "accuracy", but nothing is tested while training; set test_iter and '
        "test_interval",
    ]
