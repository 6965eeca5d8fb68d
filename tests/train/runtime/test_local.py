"""Whole runs whose replicas update by themselves: snapshots, tests, losses, and what one step each comes to."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bpt.apps.check.comparison import compare
from bpt.apps.check.faults import Fault
from bpt.base.errors import UserError
from bpt.config.plan.resolve import read_plan
from bpt.system.device import CPU
from bpt.train.rules.violations import ignored_settings, violations
from tests.chaos.losses import Kill, Kills, injected, solve
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.spread_runs import Saved, check_goes_on_bit_for_bit, read_model, read_state, remove_snapshots, train

pytestmark = pytest.mark.usefixtures("folder")

QUIET = "test_interval: 1000"
STAGES = "num_stages: 2 pipeline_param { micro_batches: 1 }"


def local(settings: str, others: str = "") -> str:
    return f"parallel_param {{ exchange: LOCAL local_param {{ {settings} }} {others} }}"


@pytest.mark.parametrize(
    ("ranks", "settings", "others", "more"),
    [
        (2, "steps: 2", "", ""),
        (3, "steps: 3 start_iter: 2 momentum: KEEP", "", "snapshot_format: HDF5 average_param { decay: 0.5 }"),
        # The moments alone are apart.
        pytest.param(2, "steps: 3 momentum: KEEP", "", "type: 'Adam' momentum2: 0.99", marks=pytest.mark.slow),
        (2, "steps: 2", "outer_param { type: NESTEROV }", ""),
        pytest.param(4, "steps: 2", STAGES, "larc: true larc_turbo: true", marks=pytest.mark.slow),
    ],
)
def test_it_goes_on_bit_for_bit_between_averages(ranks: int, settings: str, others: str, more: str) -> None:
    """Each replica by its own weights and moments, which the snapshot has beside the averages."""
    check_goes_on_bit_for_bit(ranks, local(settings, others), more)


def own_weights(iteration: int) -> dict[str, list[np.ndarray]]:
    """Of each rank, as a snapshot has them beside the averages."""
    found: dict[str, list[np.ndarray]] = {}
    for entry in read_state(iteration).exchange_memory:
        found.setdefault(entry.name, []).append(np.array(entry.values.data))
    return found


def test_a_snapshot_between_averages_has_the_average_by_samples() -> None:
    """Of 6 samples 4 ranks have 2, 2, 1 and 1. At an average all have the same, and nothing is to be added."""
    train(4, local("steps: 2"), "snapshot: 1 max_iter: 3", QUIET)
    model, own = read_model(3), own_weights(3)
    for name in ("conv/0", "fc/0", "fc/1", "ip/0", "ip/1"):
        mean = sum(part * weights for part, weights in zip((2 / 6, 2 / 6, 1 / 6, 1 / 6), own[name], strict=True))
        np.testing.assert_allclose(model[name], mean, rtol=1e-5, atol=1e-7, err_msg=name)
        assert np.abs(own[name][0] - own[name][3]).max() > 1e-4
    assert not read_state(2).exchange_memory
    resumed = train(3, local("steps: 2"), "max_iter: 4", QUIET, resume="small_iter_3.solverstate")
    assert any(
        "made on 4 ranks with weights of their own: this run continues from the average" in line for line in resumed.log
    )


def test_tests_and_snapshots_do_not_disturb() -> None:
    texts = local("steps: 3 momentum: KEEP"), "max_iter: 4 average_param { decay: 0.5 }"
    train(2, *texts, QUIET)
    plain = Path("small_iter_4.caffemodel").read_bytes()
    remove_snapshots()
    train(2, *texts, "test_interval: 1 snapshot: 1")
    assert Path("small_iter_4.caffemodel").read_bytes() == plain


@pytest.mark.parametrize(
    "settings",
    [
        "steps: 1",
        pytest.param("steps: 3 start_iter: 4", marks=pytest.mark.slow),
        pytest.param("steps: 3 sum_within_hosts: true", marks=pytest.mark.slow),
    ],
)
def test_one_step_without_momentum_is_the_update_by_the_sum_of_gradients(settings: str) -> None:
    """Also with shares of 2, 2, 1 and 1 samples; before LOCAL begins; and where all ranks are on one host."""
    texts = QUIET, "max_iter: 4 momentum: 0 clip_gradients: -1"
    train(4, *texts)
    summed = Saved.read(4)
    remove_snapshots()
    train(4, local(settings), *texts)
    Saved.read(4).check(summed, 1e-5)


@pytest.mark.slow
def test_a_net_learns() -> None:
    """As with a codec: 22 samples of 3 classes by heart, from a loss of log 3 = 1.1 on."""
    texts = "max_iter: 40", "base_lr: 0.1", QUIET, "stepsize: 40", "display: 40"
    run = train(2, local("steps: 4"), *texts)
    (loss,) = (float(found[1]) for line in run.log if (found := re.search(r"Iteration 40, loss = ([\d.]+)", line)))
    assert loss < 0.7


def test_those_that_are_left_go_on_from_the_average_of_their_weights() -> None:
    """Rank 2 dies in iteration 5, between two averages; the other two then have 3 samples each."""
    texts = local("steps: 4"), QUIET, "snapshot: 5 max_iter: 6"
    solve(3, *texts)
    before = own_weights(5)
    remove_snapshots()
    with injected(Kills([Kill(2, 5, "F")])):
        assert solve(3, *texts) == [(0, 6), (1, 6)]
    for name, values in read_model(5).items():
        if name in before:
            mean = (before[name][0] + before[name][1]) / 2
            np.testing.assert_allclose(values, mean, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (local("steps: 0"), "steps is 0; it must be at least 1"),
        (local("start_iter: -1"), "start_iter is -1; it must be at least 0"),
        (local("", "num_stages: 2 pipeline_param { schedule: DELAYED }"), "under schedule: DELAYED stages are at diff"),
        (local("", "compression_param { codec: BF16 }"), "codec: BF16 is for gradients of each iteration"),
        (local("momentum: RESET") + " type: 'Adam'", "momentum: RESET is for SGD and Nesterov: Adam divides"),
        (local("sum_within_hosts: true", "num_shards: 2"), "is for replicas of one rank each"),
        (
            "parallel_param { exchange: AGWU agwu_param { worker_exchange: LOCAL } }",
            "worker_exchange: LOCAL is not for",
        ),
    ],
)
def test_what_cannot_be_is_refused(text: str, reason: str) -> None:
    found = violations(read_plan("solver.prototxt", [text]))
    assert any(reason in violation.message for violation in found), [each.message for each in found]


def test_averages_that_are_never_made_are_named() -> None:
    plan = read_plan("solver.prototxt", ["parallel_param { local_param { steps: 2 } }"])
    assert "parallel_param: local_param has no effect without exchange: LOCAL" in map(str, ignored_settings(plan))


@pytest.mark.parametrize(
    ("text", "faults", "reason"),
    [
        (local(""), (Fault(1, 1),), "continues without the weights of a lost replica"),
        (local("", "balance: DYNAMIC"), (), "weights replicas by measured speeds"),
        (local(""), (), r'layer "bn": it normalises by the batches of all ranks \(sync\)'),
    ],
)
def test_what_one_process_cannot_follow_check_says(text: str, faults: tuple[Fault, ...], reason: str) -> None:
    plan = read_plan("solver.prototxt", [text])
    with pytest.raises(UserError, match=reason):
        run_ranks(2, lambda comm: compare(plan, CPU, comm, 2, faults=faults), tolerant=True)
