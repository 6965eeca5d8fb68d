"""What the outer layer cannot do is refused at its place, with a remedy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from bpt.base.errors import PrototxtError
from bpt.base.violation import refuse
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import CgdpSpec, FaultSpec, FcSpec, InnerSpec, ParallelSpec, PipelineSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.exchanges import make_schedule
from bpt.train.rules.violations import ignored_settings, violations
from tests.support.training import solver_of

UNDIVIDED = "without agwu_param { ranks } above num_stages, or num_shards above 1: a worker runs whole batches"


def solver(folder: Path, *lines: str) -> RunPlan:
    path = folder / "solver.prototxt"
    path.write_text("\n".join(['base_lr: 0.1 lr_policy: "fixed" max_iter: 10', *lines]))
    return read_plan(path)


def check(plan: RunPlan) -> None:
    refuse(plan, violations(plan))


def outer(folder: Path, text: str, exchange: str = "AGWU") -> RunPlan:
    """``text`` on line 3, column 1."""
    return solver(folder, f"parallel_param {{ exchange: {exchange}", text, "}")


@pytest.mark.parametrize(
    ("exchange", "text"),
    [
        ("SGWU", ""),
        ("AGWU", "num_stages: 1 num_shards: 1 balance: IDPA balance_param { num_batches: 1 rule: PAPER }"),
        ("AGWU", "balance: UNIFORM agwu_param { local_epochs: 3 max_staleness: 7 normalizer: ALL }"),
        ("ASGD", "agwu_param { push: 3 fetch: 2 } server: COLOCATED ship_data: true"),
        ("ASGD", "agwu_param { max_staleness: 4 }"),
        ("AGWU", "agwu_param { max_staleness: 4 fetch: 2 }"),  # fetch has no effect
        ("ASGD", "num_stages: 2 pipeline_param { schedule: GPIPE micro_batches: 4 } ship_data: true"),
        ("SGWU", "num_stages: 3 balance: IDPA server: DEDICATED"),
        ("AGWU", "num_shards: 4 fc_param { scheme: MASTER_SLAVE } sync_batch_norm: true"),
        ("ASGD", "num_stages: 2 agwu_param { ranks: 6 worker_exchange: RING }"),
        ("SGWU", "agwu_param { ranks: 3 worker_exchange: CGDP } cgdp_param { chunk_size: 2 }"),
        ("AGWU", "agwu_param { ranks: 1 } server: COLOCATED"),
        ("SGWU", "agwu_param { ranks: 2 } server: COLOCATED"),
        ("ASGD", "num_stages: 2 pipeline_param { schedule: DELAYED allocator: GABRA } server: COLOCATED"),
    ],
)
def test_what_can_be_run_passes(exchange: str, text: str, tmp_path: Path) -> None:
    check(outer(tmp_path, text, exchange))


def test_an_empty_text_clears_the_best_snapshot(tmp_path: Path) -> None:
    text = "parallel_param { exchange: AGWU } test_iter: 1 test_interval: 1 snapshot_best: "
    check(solver(tmp_path, f'{text}""'))
    with pytest.raises(PrototxtError, match="snapshot_best writes the state"):
        check(solver(tmp_path, f'{text}"accuracy"'))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (
            "num_shards: 4 agwu_param { ranks: 6 }", 28, "agwu_param: ranks: 6 cannot be divided into num_stages 1 "
            "× num_shards 4 = 4 ranks a replica; use a multiple of 4"
        ),
        (
            "num_stages: 2 agwu_param { ranks: 1 }", 28, "agwu_param: ranks: 1 cannot be divided into num_stages 2 "
            "× num_shards 1 = 2 ranks a replica; use a multiple of 2"
        ),
        ("agwu_param { ranks: -2 }", 14, "agwu_param: ranks is -2; it must be at least 0"),
        (
            "agwu_param { ranks: 2 worker_exchange: ASGD }", 23, "agwu_param: worker_exchange: ASGD is not for the "
            "ranks of a worker, which go in step; use ALLREDUCE, TREE, CGDP or RING"
        ),
        (
            "agwu_param { ranks: 2 worker_exchange: CGDP } cgdp_param { step: 0 }", 60,
            "cgdp_param: step is 0; it must be at least 1"
        ),
        (
            "agwu_param { ranks: 2 } server: COLOCATED ship_data: true", 43,
            "parallel_param: ship_data: true does not go with server: COLOCATED and workers of 2 ranks, several of "
            "which read data: to the server's own worker nothing is sent; leave one of them out"
        ),
        ("num_stages: 0", 1, "parallel_param: num_stages is 0; it must be at least 1"),
        (
            "num_stages: 2 pipeline_param { micro_batches: 0 }", 32,
            "pipeline_param: micro_batches is 0; it must be at least 1"
        ),
        (
            "balance: STATIC", 1, "parallel_param: balance: STATIC divides the batches of a synchronous exchange; "
            "exchange: AGWU divides the data set: use balance: IDPA or UNIFORM"
        ),
        ("agwu_param { local_epochs: 0 }", 14, "agwu_param: local_epochs is 0; it must be at least 1"),
        ("agwu_param { max_staleness: -1 }", 14, "agwu_param: max_staleness is -1; it must be at least 0"),
        ("agwu_param { staleness_limit: -1 }", 14, "agwu_param: staleness_limit is -1; it must be at least 0"),
        ("agwu_param { compensation: -0.5 }", 14, "agwu_param: compensation is -0.5; it must be at least 0"),
        ("outer_param { lr: 0 }", 15, "outer_param: lr is 0; it must be above 0"),
        ("outer_param { momentum: 1 }", 15, "outer_param: momentum is 1; it must be at least 0 and below 1"),
        ("agwu_param { push: 0 }", 14, "agwu_param: push is 0; it must be at least 1"),
        ("agwu_param { fetch: -3 }", 14, "agwu_param: fetch is -3; it must be at least 1"),
        ("balance_param { num_batches: 0 }", 17, "balance_param: num_batches is 0; it must be at least 1"),
        (
            "balance_param { migrate: true }", 17, "balance_param: migrate: true moves samples that IDPA has divided, "
            "and balance is UNIFORM; use balance: IDPA with exchange: SGWU, AGWU or ASGD, or leave migrate out"
        ),
    ],
)  # fmt: skip
def test_what_cannot_is_refused(text: str, column: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(outer(tmp_path, text))
    assert str(caught.value) == f"{tmp_path}/solver.prototxt:3:{column}: {message}"


def test_falling_behind_on_purpose_and_bounded_staleness(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(outer(tmp_path, "agwu_param { max_staleness: 9 fetch: 2 }", "ASGD"))
    assert str(caught.value) == (
        f"{tmp_path}/solver.prototxt:3:31: agwu_param: fetch: 2 lets a worker fall behind on purpose, and "
        "max_staleness forbids it; leave one of them out"
    )


def test_debug_info(tmp_path: Path) -> None:
    with pytest.raises(PrototxtError) as caught:
        check(solver(tmp_path, "parallel_param { exchange: SGWU } debug_info: true"))
    assert str(caught.value) == (
        f"{tmp_path}/solver.prototxt:2:35: debug_info: true looks at one net, and with exchange: SGWU every rank has "
        "its own; leave it out"
    )


def test_the_rest_of_the_text_is_checked_as_well(tmp_path: Path) -> None:
    for exchange in ("AGWU", "ALLREDUCE"):
        with pytest.raises(PrototxtError, match=r"solver.prototxt:2:1: display is -1; it must be at least 0"):
            check(solver(tmp_path, "display: -1", f"parallel_param {{ exchange: {exchange} }}"))


def test_standalone(tmp_path: Path) -> None:
    """What is left of parallel_param is what a process does by itself; the plan itself stays as it is."""
    plan = outer(tmp_path, "inner_param { engine: TASK_DAG num_threads: 2 } server: COLOCATED")
    alone = plan.standalone()
    assert alone.parallel_param == ParallelSpec(inner_param=InnerSpec(pb.InnerParameter.TASK_DAG, num_threads=2))
    assert alone.given("parallel_param", "inner_param", "engine")
    assert not alone.given("parallel_param", "server")
    assert alone.max_iter == 10 and alone.path == plan.path
    assert plan.is_outer and not alone.is_outer


def test_of_node(tmp_path: Path) -> None:
    """A pipeline keeps its stages, a grid its shards and exchange, too; a worker alone is one process."""
    plan = outer(tmp_path, "num_stages: 2 pipeline_param { micro_batches: 3 } balance: IDPA inner_param { }")
    stop = FaultSpec(on_loss=pb.FaultParameter.STOP)  # the others go on without a node
    pipeline = PipelineSpec(micro_batches=3)
    assert plan.of_node().parallel_param == ParallelSpec(num_stages=2, pipeline_param=pipeline, fault_param=stop)
    inside = "ranks: 4 worker_exchange: CGDP } cgdp_param { chunk_size: 2 } fc_param { scheme: MASTER_SLAVE }"
    grid = outer(tmp_path, f"num_shards: 2 sync_batch_norm: true ship_data: true agwu_param {{ push: 2 {inside}")
    assert grid.of_node().parallel_param == ParallelSpec(
        num_shards=2, exchange=pb.ParallelParameter.CGDP, cgdp_param=CgdpSpec(chunk_size=2), sync_batch_norm=True,
        fc_param=FcSpec(pb.FcParameter.MASTER_SLAVE), fault_param=stop,
    )  # fmt: skip
    alone = outer(tmp_path, "balance: IDPA pipeline_param { micro_batches: 3 }").of_node()
    assert alone.parallel_param == ParallelSpec() and not alone.given("parallel_param", "pipeline_param")


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("exchange: AGWU agwu_param { normalizer: ALL local_epochs: 2 max_staleness: 3 weigh_by_accuracy: true }", []),
        ("exchange: SGWU agwu_param { local_epochs: 2 weigh_by_accuracy: false }", []),
        ("exchange: ASGD agwu_param { push: 2 fetch: 3 max_staleness: 0 }", []),
        ("exchange: ASGD num_stages: 2 pipeline_param { micro_batches: 2 }", []),
        ("exchange: ASGD num_shards: 2 fc_param { } sync_batch_norm: true agwu_param { worker_exchange: RING }", []),
        ("exchange: ASGD num_stages: 2 agwu_param { ranks: 4 worker_exchange: CGDP } cgdp_param { chunk_size: 2 }", []),
        (
            "exchange: ASGD agwu_param { ranks: 4 } cgdp_param { chunk_size: 2 }",
            ["cgdp_param has no effect without worker_exchange: CGDP"],
        ),
        (
            "exchange: ASGD num_stages: 2 agwu_param { ranks: 2 worker_exchange: CGDP } cgdp_param { }",
            [
                f"agwu_param {{ worker_exchange }} has no effect {UNDIVIDED}",
                "cgdp_param has no effect with exchange: ASGD",
            ],
        ),
        ("exchange: AGWU balance: IDPA balance_param { num_batches: 3 rule: PAPER }", []),
        (
            "exchange: SGWU agwu_param { normalizer: ALL max_staleness: 1 push: 1 fetch: 1 staleness: TABLE }",
            [
                f"agwu_param {{ {field} }} has no effect with exchange: SGWU"
                for field in ("normalizer", "max_staleness", "push", "fetch", "staleness")
            ],
        ),
        ("exchange: SGWU agwu_param { local_updates: BY_SPEED } outer_param { type: NESTEROV lr: 1 momentum: 0 }", []),
        ("exchange: AGWU agwu_param { staleness: DISCARD staleness_limit: 3 }", []),
        ("exchange: LOCAL outer_param { type: DELAYED_NESTEROV }", []),
        (
            "exchange: ASGD agwu_param { staleness: TABLE staleness_limit: 3 compensation: 1 } outer_param { lr: 1 }",
            [
                "agwu_param { staleness_limit } has no effect without staleness: DISCARD",
                "agwu_param { compensation } has no effect without staleness: COMPENSATE",
                "outer_param has no effect without exchange: LOCAL, SGWU or AGWU",
            ],
        ),
        ("exchange: AGWU outer_param { lr: 1 }", ["outer_param { lr } has no effect without a type"]),
        (
            "exchange: ASGD agwu_param { normalizer: ALL local_epochs: 1 weigh_by_accuracy: true }",
            [
                f"agwu_param {{ {field} }} has no effect with exchange: ASGD"
                for field in ("normalizer", "local_epochs", "weigh_by_accuracy")
            ],
        ),
        (
            "exchange: AGWU balance_param { num_batches: 3 rule: PAPER }",
            [
                "balance_param { num_batches } has no effect without balance: IDPA",
                "balance_param { rule } has no effect without balance: IDPA",
            ],
        ),
        (
            "exchange: AGWU balance: IDPA balance_param { profile: 'speed.json' normalizer: UNIFORM }",
            [
                "balance_param { profile } has no effect with exchange: AGWU",
                "balance_param { normalizer } has no effect with exchange: AGWU",
            ],
        ),
        (
            "exchange: AGWU cgdp_param { } fc_param { } pipeline_param { } sync_batch_norm: true batch_scope: REPLICA",
            [
                "cgdp_param has no effect with exchange: AGWU",
                "fc_param has no effect without num_shards above 1",
                "pipeline_param has no effect without num_stages above 1",
                f"sync_batch_norm has no effect {UNDIVIDED}",
                "batch_scope has no effect with exchange: AGWU",
            ],
        ),
    ],
)
def test_what_has_no_effect(text: str, remarks: list[str]) -> None:
    told = [str(each) for each in ignored_settings(solver_of(f"parallel_param {{ {text} }}"))]
    assert sorted(told) == sorted(f"parallel_param: {remark}" for remark in remarks)


def refusal(folder: Path, text: str, samples: int = 100, passes: int = 9) -> str:
    with pytest.raises(PrototxtError) as caught:
        make_schedule(outer(folder, text), samples, 3, Fraction(passes))
    return str(caught.value).removeprefix(f"{folder}/solver.prototxt:")


def test_numbers_that_fit_the_data(tmp_path: Path) -> None:
    assert isinstance(make_schedule(outer(tmp_path, "balance: IDPA"), 100, 3, Fraction(9)), Agwu)


def test_samples_that_stay_together(tmp_path: Path) -> None:
    plan = outer(tmp_path, "balance: IDPA balance_param { num_batches: 4 }")
    assert make_schedule(plan, 80, 3, Fraction(9), 20).idpa.grain == 20
    with pytest.raises(
        PrototxtError, match=r"num_batches is 4, but there are only 3 whole batches of 20 samples to .*: 3"
    ):
        make_schedule(plan, 60, 3, Fraction(9), 20)


def test_a_number_that_is_written(tmp_path: Path) -> None:
    assert refusal(tmp_path, "balance: IDPA balance_param { num_batches: 5 }", passes=2) == (
        "3:31: balance_param: num_batches is 5, but the data are trained only 2 times; use num_batches: 2 or fewer"
    )
    assert refusal(tmp_path, "agwu_param { max_staleness: 1 }").startswith(
        "3:14: agwu_param: max_staleness is 1, but of 3 workers"
    )


def test_a_default(tmp_path: Path) -> None:
    """At what is nearest around it."""
    assert refusal(tmp_path, "balance: IDPA", passes=2).startswith(
        "2:1: balance_param: num_batches is 4 (the default), but the data are trained only 2 times; use"
    )
    assert refusal(tmp_path, "balance: IDPA", samples=3).startswith(
        "2:1: balance_param: num_batches is 4 (the default), but there are only 3 samples to hand out"
    )
