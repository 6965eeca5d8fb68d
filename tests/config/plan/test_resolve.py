"""A plan holds what a text says, with the schema's defaults, and its variants leave it as it is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import PrototxtError
from bpt.base.origin import Origin
from bpt.base.violation import refuse
from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.nets import NetFields
from bpt.config.plan.resolve import plan_of, read_plan, resolve
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.config.proto.sources import SolverSource, read_solver
from bpt.config.schema_specs import SPECS
from bpt.train.rules.violations import violations

TEXT = """net: "net.prototxt" base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 3
test_iter: 2 test_interval: 5 max_iter: 10 snapshot: 4 display: 1
weights: "w" parallel_param { exchange: RING num_stages: 2
  pipeline_param { micro_batches: 8 } inner_param { num_threads: 3 } }"""


def plan(folder: Path, *overrides: str, text: str = TEXT) -> RunPlan:
    path = folder / "solver.prototxt"
    path.write_text(text)
    return read_plan(path, overrides)


def names(spec: object) -> set[str]:
    assert is_dataclass(spec)
    return {field.name for field in fields(spec)}


def defaults(spec: Any, message: Any) -> None:
    """All fields of a message are there, with their values of a text that does not set them."""
    known = {field.name for field in message.DESCRIPTOR.fields}
    assert names(spec) == known
    for name in known:
        value, wanted = getattr(spec, name), getattr(message, name)
        if is_dataclass(value):
            defaults(value, wanted)
        else:
            assert value == (tuple(wanted) if isinstance(value, tuple) else wanted), name


@pytest.mark.parametrize("message", sorted(SPECS.keys() - {"SolverParameter"}))
def test_a_spec_has_all_fields_of_its_message_with_their_defaults(message: str) -> None:
    defaults(SPECS[message](), getattr(pb, message)())


@pytest.mark.parametrize("kind", [OptimSpec, RunPlan])
def test_a_plan_has_the_defaults_of_a_solver(kind: type[Any]) -> None:
    spec, solver = kind(), pb.SolverParameter()
    own = {name for name in names(spec) & {*solver.DESCRIPTOR.fields_by_name} if not is_dataclass(getattr(spec, name))}
    assert len(own) > 20
    for name in own:
        value, wanted = getattr(spec, name), getattr(solver, name)
        assert value == (tuple(wanted) if isinstance(value, tuple) else wanted), name


def test_some_defaults_by_hand() -> None:
    """As Caffe and the guides have them: a plan and its schema could agree on something else."""
    optim, parallel = OptimSpec(), ParallelSpec()
    assert (optim.type, optim.iter_size, optim.clip_gradients, optim.momentum_power) == ("SGD", 1, -1.0, 1.0)
    assert (optim.onecycle_param.div_factor, optim.average_param.start, optim.stepvalue) == (25.0, 1, ())
    assert (parallel.exchange, parallel.pipeline_param.micro_batches) == (pb.ParallelParameter.ALLREDUCE, 4)
    assert (parallel.fault_param.timeout, parallel.agwu_param.weigh_by_accuracy) == (300.0, True)
    assert (RunPlan().random_seed, RunPlan().snapshot_after_train, RunPlan().eval_type) == (-1, True, "classification")


def test_all_of_a_solver_is_in_a_plan() -> None:
    known = {field.name for field in pb.SolverParameter.DESCRIPTOR.fields}
    held = names(RunPlan()) | names(OptimSpec()) | names(NetFields())
    # The old form of type, which reading replaces; and what has no effect, of which only its being set counts.
    without_effect = {"layer_wise_reduce", *fork_fields.NO_EFFECT["SolverParameter"]}
    refused = fork_fields.REFUSED["SolverParameter"]
    # Where "precision" is not set, the net's text counts.
    assert known - held == {"solver_type", "precision", *without_effect, *refused}
    assert "asked_precision" in names(RunPlan())


def test_an_empty_text_is_a_plan_of_defaults() -> None:
    empty = resolve(SolverSource(pb.SolverParameter(), "", {}))
    assert replace(empty, shared_text="") == RunPlan()


def test_numbers_are_those_of_the_text(tmp_path: Path) -> None:
    made = plan(tmp_path, "max_iter: 20")
    assert (made.max_iter, made.display, made.snapshot, made.test_iter, made.weights) == (20, 1, 4, (2,), ("w",))
    assert (made.optim.gamma, made.optim.stepsize, made.optim.lr_policy) == (0.5, 3, "step")
    assert made.parallel_param.exchange == pb.ParallelParameter.RING
    assert made.parallel_param.pipeline_param.micro_batches == 8
    assert plan_of(made) is made


def test_origins_and_what_is_given(tmp_path: Path) -> None:
    made = plan(tmp_path)
    path = f"{tmp_path}/solver.prototxt"
    assert made.origin("parallel_param", "pipeline_param", "micro_batches") == Origin(path, 4, 20)
    assert made.origin("parallel_param", "pipeline_param", "allocator") == Origin(path, 4, 3)  # around it
    assert made.given("parallel_param", "pipeline_param", "micro_batches")
    assert not made.given("parallel_param", "pipeline_param", "allocator")
    assert made.given("parallel_param", "inner_param") and not made.given("parallel_param", "fc_param")


def test_flags_are_laid_over_the_text(tmp_path: Path) -> None:
    (tmp_path / "solver.prototxt").write_text(TEXT)
    source = read_solver(tmp_path / "solver.prototxt")
    made = resolve(source, ["a", "b"], 2, ["s"])
    assert made.weights == ("a", "b")
    assert made.nets.train_state == pb.NetState(level=2, stage=["s"])
    assert 'weights: "a"' in made.text and 'weights: "w"' not in made.text
    assert list(source.param.weights) == ["w"]  # the text stays


def test_a_measurement(tmp_path: Path) -> None:
    made = plan(tmp_path)
    measured = made.measured()
    assert (measured.tests, measured.snapshot, measured.snapshot_after_train) == ((), 0, False)
    assert (measured.display, measured.weights) == (0, ())
    assert measured.optim == made.optim and measured.parallel_param == made.parallel_param
    assert made.test_iter == (2,) and made.snapshot == 4


def test_variants(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert made.with_seed(5).random_seed == 5 and made.random_seed == -1
    assert made.with_pipeline(micro_batches=2).parallel_param.pipeline_param.micro_batches == 2
    assert made.with_parallel(num_stages=3).parallel_param.num_stages == 3
    assert made.standalone().parallel_param.num_stages == 1


def test_a_violation_is_shown_at_its_place(tmp_path: Path) -> None:
    wrong = plan(tmp_path, text=TEXT.replace("micro_batches: 8", "micro_batches: 0"))
    (found,) = violations(wrong)
    assert found.field == ("parallel_param", "pipeline_param", "micro_batches")
    with pytest.raises(PrototxtError) as caught:
        refuse(wrong, [found])
    assert (
        str(caught.value)
        == f"{tmp_path}/solver.prototxt:4:20: pipeline_param: micro_batches is 0; it must be at least 1"
    )
    refuse(wrong, [])
