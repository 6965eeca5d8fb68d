"""Whole runs whose gradients travel by a codec: they train, and go on from a snapshot bit for bit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bpt.apps.check.comparison import compare
from bpt.base.errors import PrototxtError
from bpt.config.plan.resolve import read_plan
from bpt.engine.optim import loss_scale
from bpt.parallel.exchange.allreduce import Allreduce
from bpt.system.device import CPU
from bpt.train.rules.violations import violations
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import Solver
from tests.support import spread_runs
from tests.support.doubles.thread_ranks import run_ranks

pytestmark = pytest.mark.usefixtures("folder")

STAGES = "num_stages: 2 pipeline_param { micro_batches: 1 }"
BF16 = "codec: BF16 links: ALL"
TOPK = "codec: TOPK ratio: 0.1 links: ALL"
POWERSGD = "codec: POWERSGD rank: 1 warm_up: 2 links: ALL"


def parallel(codec: str, others: str = "") -> str:
    return f"parallel_param {{ {others} compression_param {{ {codec} }} }}"


@pytest.mark.parametrize(
    ("ranks", "codec", "others", "more"),
    [
        (2, BF16, "", ""),
        (3, "codec: FP16 links: ALL", "exchange: TREE", ""),
        (2, POWERSGD, "exchange: CGDP cgdp_param { chunk_size: 1 }", ""),
        (4, "codec: TOPK ratio: 0.1", "exchange: RING", ""),
        pytest.param(4, TOPK, STAGES, "snapshot_format: HDF5", marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_bit_for_bit(ranks: int, codec: str, others: str, more: str) -> None:
    """4 ranks are on two hosts, of each of which one keeps residuals where the codec is for links between them."""
    hosts = ["north", "south"] * (ranks // 2) if ranks % 2 == 0 else None
    spread_runs.check_goes_on_bit_for_bit(ranks, parallel(codec, others), more, hosts=hosts)


def test_without_what_was_left_out_it_would_be_another_run() -> None:
    text = parallel(TOPK)
    spread_runs.train(2, "snapshot: 2 max_iter: 3", text)
    straight, state = spread_runs.read_model(3), spread_runs.read_state(2)
    kept = {(entry.rank, entry.name): np.array(entry.values.data) for entry in state.exchange_memory}
    assert {rank for rank, _ in kept} == {0, 1}
    assert {name for _, name in kept} == {"conv/0", "fc/0", "fc/1", "ip/0", "ip/1"}
    assert state.exchange_ranks == 2
    resumed = spread_runs.train(3, text, "max_iter: 3", resume="small_iter_2.solverstate")
    assert any("residuals begin anew" in line for line in resumed.log)
    assert any(not np.array_equal(straight[name], values) for name, values in spread_runs.read_model(3).items())


def test_none_is_the_run_without() -> None:
    spread_runs.train(2, "max_iter: 3")
    plain = spread_runs.Saved.read(3)
    spread_runs.remove_snapshots()
    spread_runs.train(2, "max_iter: 3", parallel("codec: NONE"))
    spread_runs.Saved.read(3).check(plain, 0)
    assert not spread_runs.read_state(3).exchange_memory


def test_the_log_tells_that_there_is_no_link_for_a_codec() -> None:
    remark = "parallel_param: compression_param has no effect, since all ranks are on one host"
    text = parallel("codec: BF16"), "max_iter: 1"
    assert any(line.startswith(remark) for line in spread_runs.train(2, *text).log)
    log = spread_runs.train(2, *text, hosts=["north", "south"]).log
    assert not any(line.startswith(remark) for line in log)
    assert "Parallel: 2 ranks = 2 replicas; ALLREDUCE, codec BF16 between hosts, balance UNIFORM" in log


@pytest.mark.parametrize("codec", [TOPK, pytest.param(POWERSGD, marks=pytest.mark.slow)])
def test_a_net_learns(codec: str) -> None:
    """22 samples of 3 classes by heart: from a loss of log 3 = 1.1 on."""
    texts = "max_iter: 40", "base_lr: 0.1", "test_interval: 1000", "stepsize: 40", "display: 40"
    run = spread_runs.train(2, parallel(codec), *texts)
    (loss,) = (float(found[1]) for line in run.log if (found := re.search(r"Iteration 40, loss = ([\d.]+)", line)))
    assert loss < 0.7


def test_check_compares_all_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bpt")
    plan = read_plan("solver.prototxt", [parallel(BF16)])
    compared, _ = run_ranks(2, lambda comm: compare(plan, CPU, comm, 2))[0]
    assert all(line.within(1e-9) for line in compared)
    assert "Comparing without codec: BF16, which changes gradients on purpose" in caplog.messages


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (parallel("codec: POWERSGD", "exchange: AGWU"), "under exchange: AGWU each worker submits by itself"),
        (parallel("codec: TOPK ratio: 1"), r"ratio is 1; it must be above 0 and below 1"),
        (parallel("codec: POWERSGD rank: 0"), "rank is 0; it must be at least 1"),
        (parallel("codec: POWERSGD warm_up: -1"), "warm_up is -1; it must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused(text: str, reason: str) -> None:
    found = violations(read_plan("solver.prototxt", [text]))
    assert any(re.search(reason, violation.message) for violation in found), [each.message for each in found]


def trained_by(net: str, codec: str, others: str = "", *overrides: str) -> bytes:
    """The weights that a run of this net leaves."""
    spread_runs.remove_snapshots()
    Path("net.prototxt").write_text(f"{spread_runs.NET} {net}")
    spread_runs.train(2, parallel(codec, others), "max_iter: 5", "test_interval: 1000", *overrides)
    return Path("small_iter_5.caffemodel").read_bytes()


@pytest.mark.parametrize(
    ("codec", "others"),
    [
        pytest.param(BF16, "", marks=pytest.mark.slow),
        pytest.param("codec: FP16 links: ALL", "exchange: TREE", marks=pytest.mark.slow),
        (TOPK, "exchange: RING"),
        (POWERSGD, ""),
    ],
)
def test_true_gradients_are_coded_whatever_the_loss_scale(codec: str, others: str) -> None:
    """Which doubles after every second iteration: to the last bit it is the run without. (It was refused once.)"""
    plain = trained_by("", codec, others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "GROWS_AFTER", 2)
        assert trained_by("global_grad_scale_adaptive: true", codec, others) == plain
    assert spread_runs.read_state(5).loss_scale == 2.0**18


@pytest.mark.parametrize(
    ("codec", "rank"),
    [
        pytest.param(BF16, 0, marks=pytest.mark.slow),
        pytest.param("codec: FP16 links: ALL", 1, marks=pytest.mark.slow),
        (TOPK, 1),
        (POWERSGD, 0),
    ],
)
def test_an_overflow_leaves_residuals_alone(codec: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of a gradient of iteration 3 is infinite before it is coded, on one rank: all leave the update out."""
    start = Allreduce.start

    def overflow(exchange: Allreduce, segment: int) -> None:
        bucket = exchange.buckets[segment][0]
        if bucket.comm.rank == rank and exchange.codec is seen.get(rank) and runtimes[rank].iteration == 3:
            assert bucket.parameters[0].grad is not None
            bucket.parameters[0].grad.view(-1)[0] = float("inf")
        start(exchange, segment)

    seen: dict[int, object] = {}
    runtimes: dict[int, Runtime] = {}

    def each(solver: Solver) -> None:
        runtime = solver.runtime
        runtimes[runtime.world.rank], seen[runtime.world.rank] = runtime, runtime.exchange.codec

    monkeypatch.setattr(Allreduce, "start", overflow)
    Path("net.prototxt").write_text(f"{spread_runs.NET} global_grad_scale_adaptive: true")
    spread_runs.train(2, parallel(codec), "snapshot: 1 max_iter: 5", "test_interval: 1000", each=each)
    assert [spread_runs.read_state(iteration).loss_scale for iteration in (3, 4)] == [65536.0, 32768.0]
    before, after, later = (
        {
            (entry.rank, entry.name): list(entry.values.data)
            for entry in spread_runs.read_state(iteration).exchange_memory
        }
        for iteration in (3, 4, 5)
    )
    assert before and after == before and later != before
    assert all(np.isfinite(values).all() for values in later.values())
    weights = [spread_runs.read_model(iteration)["fc/0"] for iteration in (3, 4, 5)]
    assert np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[1], weights[2])


def test_scales_of_several_batches_at_once_are_refused() -> None:
    Path("net.prototxt").write_text(f"{spread_runs.NET} global_grad_scale_adaptive: true")
    delayed = "num_stages: 2 pipeline_param { schedule: DELAYED }"
    with pytest.raises(PrototxtError, match=r"codec: BF16 codes true gradients, .* set global_grad_scale in the net"):
        spread_runs.train(4, parallel(BF16, delayed), "clip_gradients: -1 iter_size: 1")
