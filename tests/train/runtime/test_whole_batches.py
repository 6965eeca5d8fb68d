"""Nets whose batches stay whole: each rank trains batches of its own, and the sum is that of one process's passes.

Or ranks that hold one net together have the same whole batches.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bpt.apps.check.comparison import Compared, compare
from bpt.base.errors import LayerError
from bpt.config.plan.resolve import read_plan
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.perf.speeds.profiling import profile
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.solver.solver import Solver
from tests.support.compared import gradient_in
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import Line, Saved, assert_same_lines, remove_snapshots, train
from tests.support.whole_batches import NET, STREAMS, loss_by_hand, put

pytestmark = pytest.mark.usefixtures("sequences")


REPLICA = "parallel_param { batch_scope: REPLICA }"


def scores_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "Test net output" in line.words]


@pytest.mark.parametrize(("ranks", "more"), [(2, ""), (3, ""), (2, "parallel_param { exchange: CGDP }")])
def test_ranks_train_as_many_passes_of_one_process(ranks: int, more: str) -> None:
    """Over three and five epochs: shares are not turned, or else sequences would be cut. Tests are alike."""
    one = train(1, f"iter_size: {ranks}")
    expected = Saved.read(8)
    remove_snapshots()
    many = train(ranks, REPLICA, more)
    found = Saved.read(8)
    assert found.weights.keys() == expected.weights.keys()
    for name, values in expected.weights.items():
        assert np.abs(values).max() > 0
        np.testing.assert_allclose(found.weights[name], values, rtol=0, atol=1e-5, err_msg=name)
    assert len(scores_of(one.lines)) == 6
    assert_same_lines(scores_of(many.lines), scores_of(one.lines))


def whole_run(ranks: int, *more: str) -> tuple[Saved, list[Line]]:
    lines = train(ranks, *more).lines
    saved = Saved.read(8)
    remove_snapshots()
    return saved, lines


STAGES = "parallel_param {{ num_stages: {} pipeline_param {{ schedule: {} micro_batches: 1 }} }}"
MASTER = "parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE } }"


@pytest.mark.parametrize("begin", [0, slow(1)])
@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        (2, [STAGES.format(2, "GPIPE")]),
        (3, [STAGES.format(3, "SEQUENTIAL")]),
        (2, [STAGES.format(2, "ONE_F_ONE_B"), "iter_size: 2"]),
        (2, [STAGES.format(2, "GPIPE").replace("batches: 1", "batches: 3")]),  # what gathers them has the whole batch
        (3, [STAGES.format(3, "ONE_F_ONE_B").replace("batches: 1", "batches: 2"), "iter_size: 2"]),
        (3, [MASTER]),
        (6, [MASTER, STAGES.format(2, "GPIPE")]),
    ],
)
def test_stages_and_shards_have_the_same_whole_batches(ranks: int, more: list[str], begin: int) -> None:
    """Through tests and displays; also of sequences that go on from batch to batch, and over the end of the data."""
    put(begin)
    alone = [text for text in more if text.startswith("iter_size")] + ["display: 1"]
    expected, lines = whole_run(1, *alone)
    found, others = whole_run(ranks, *more, "display: 1")
    found.check(expected, 1e-5)
    assert_same_lines(others, lines)
    assert len(scores_of(lines)) == 6 and np.ptp([line.numbers[0] for line in scores_of(lines)[1::2]]) > 0


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize(("ranks", "more"), [(4, STAGES.format(2, "GPIPE")), (6, MASTER)])
@pytest.mark.slow
def test_replicas_of_stages_and_shards_have_whole_batches_each(ranks: int, more: str, begin: int) -> None:
    """As ranks alone have them, each with states of its own."""
    put(begin)
    expected, lines = whole_run(2, REPLICA)
    found, others = whole_run(ranks, REPLICA, more)
    found.check(expected, 1e-5)
    assert_same_lines(scores_of(others), scores_of(lines))


@pytest.mark.parametrize("delay", [0, 1])
def test_delayed_gradients_of_sequences(delay: int) -> None:
    """A stage applies gradients of the batch before, which went forward by the weights and states of its time."""
    put(begin=1)
    with Solver(read_plan("solver.prototxt")) as solver:
        named = solver.net.values_by_name()
        weights = {f"{name}/{blob}": value.detach().double() for (name, blob), value in named.items()}
    state, late = [torch.zeros(STREAMS, 3, dtype=torch.float64)] * 2, {"fc": delay, "lstm": delay, "ip": 0}
    gradients: list[dict[str, Tensor]] = []
    for now in range(8):
        leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
        loss, state = loss_by_hand(leaves, now, state)
        loss.backward()
        gradients.append({name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None})
        batch = {name: now - late[name.split("/")[0]] for name in weights}
        weights = {
            name: w - 0.2 * gradients[batch[name]][name] if batch[name] >= 0 else w for name, w in weights.items()
        }
    stages = "num_stages: 2 pipeline_param { schedule: DELAYED allocator: MANUAL }"
    Path("net.prototxt").write_text(NET.replace('{ name: "labels"', '{ name: "labels" parallel_param { stage: 1 }'))
    train(1 + delay, "momentum: 0", *[f"parallel_param {{ {stages} }}"] * delay)
    found = Saved.read(8).weights
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value.flatten(), rtol=0, atol=1e-5, err_msg=name)


def compared(*overrides: str) -> list[Compared]:
    def run(comm: Communicator) -> list[Compared]:
        return compare(read_plan("solver.prototxt", (REPLICA, *overrides)), CPU, comm, 4)[0]

    return run_ranks(2, run)[0]


def test_one_process_is_compared_with_ranks_that_keep_their_states(caplog: pytest.LogCaptureFixture) -> None:
    """Sequences go on from batch to batch, on each rank its own."""
    put(begin=1)
    with caplog.at_level(logging.INFO, "bpt"):
        found = compared()
    assert "Now the same on one process" in caplog.text and "micro-batch" not in caplog.text
    assert [line.name for line in found][:2] == ["fc/0", "fc/1"] and len(found) == 7
    assert all(gradient_in(line).size > 0 and line.weight.size > 0 for line in found)
    assert max(max(gradient_in(line).relative, line.weight.relative) for line in found) < 1e-9


def test_what_one_process_cannot_do_one_batch_behind_the_other(sequences: Path) -> None:
    counted = 'loss_param { ignore_label: 2 } softmax_param { axis: 2 } }\nlayer { name: "accuracy"'
    text = NET.replace('softmax_param { axis: 2 } }\nlayer { name: "accuracy"', counted)
    (sequences / "net.prototxt").write_text(text)
    with pytest.raises(LayerError, match=r'"loss": loss_param { ignore_label } .* a copy of the net'):
        compared()
    (sequences / "net.prototxt").write_text(
        NET.replace(
            'layer { name: "drop"',
            'layer { name: "bn" type: "BatchNorm" bottom: "fc" top: "fc" }\nlayer { name: "drop"',
        )
    )
    with pytest.raises(LayerError, match=r'"bn": it normalises by the batches of all ranks \(sync\); the batches'):
        compared("parallel_param { sync_batch_norm: true }")
    assert all(line.within(1e-9) for line in compared())  # each by itself, as one process does it


def test_such_a_net_is_not_measured() -> None:
    """By batches of one size only."""
    with pytest.raises(LayerError, match=r'"steps": .* so batches have one size, .* no profile is needed$'):
        profile(read_plan("solver.prototxt"), CPU, SerialCommunicator(), "p.json")


def test_a_net_without_time_is_divided(sequences: Path) -> None:
    with Solver(read_plan("solver.prototxt")) as solver:
        assert not is_dividable(solver.net.graph)
    cut = (
        NET[: NET.index('layer { name: "steps"')]
        + 'layer { name: "s" type: "Silence" bottom: "fc" bottom: "cont" bottom: "y" }'
    )
    (sequences / "net.prototxt").write_text(cut)
    with Solver(read_plan("solver.prototxt")) as solver:
        assert is_dividable(solver.net.graph)
