"""A signal that one rank gets is served by all ranks, after the same iteration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bpt.base.signals import SignalAction
from bpt.config.proto import bpt_pb2 as pb
from tests.support.marks import slow
from tests.support.signalled_runs import UNTESTED, Noted, on
from tests.support.spread_runs import Run, Saved, assert_same_lines, remove_snapshots, train

pytestmark = pytest.mark.usefixtures("folder")

TREE = "parallel_param { exchange: TREE }"
MASTERS = "parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE } }"


def everywhere(*iterations: int) -> dict[int, list[int]]:
    """Snapshots after these iterations, on three ranks."""
    return {rank: list(iterations) for rank in range(3)}


@pytest.mark.parametrize("overrides", ["", TREE, MASTERS])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_snapshot(rank: int, overrides: str) -> None:
    expected = train(1, UNTESTED)
    noted = Noted()
    run = train(3, UNTESTED, overrides, signals=on(rank, 4, SignalAction.SNAPSHOT), each=noted)
    assert noted.snapshots == everywhere(5, 9)  # asked in the fifth iteration; and at the end
    assert run.iterations == [9] * 3
    assert not any(solver.terminated for solver in noted.solvers)
    assert_same_lines(run.lines, expected.lines)
    resumed = train(1, UNTESTED, resume="small_iter_5.solverstate")
    assert_same_lines(resumed.lines, expected.since(6))


@pytest.mark.parametrize("overrides", ["", slow(TREE), MASTERS])
@pytest.mark.parametrize("term", [False, slow(True)])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_stop(rank: int, term: bool, overrides: str) -> None:
    straight = train(1, UNTESTED)
    remove_snapshots()
    noted = Noted()
    run = train(3, UNTESTED, overrides, signals=on(rank, 4, SignalAction.STOP, term), each=noted)
    assert run.iterations == [5] * 3
    assert noted.snapshots == everywhere(5)
    assert [solver.terminated for solver in noted.solvers] == [term] * 3
    assert run.log[-1] == "Optimization stopped early."
    assert_same_lines(train(2, UNTESTED, resume="auto").lines, straight.since(6))


def in_a_test(action: SignalAction, overrides: str, noted: Noted) -> Run:
    """Rank 1 gets a signal before the second batch of the first test."""
    return train(3, overrides, signals=on(1, 1, action), each=noted)


@pytest.mark.parametrize("overrides", ["", TREE, MASTERS])
def test_a_stop_in_a_test(overrides: str) -> None:
    noted = Noted()
    run = in_a_test(SignalAction.STOP, overrides, noted)
    assert run.iterations == [0] * 3
    assert noted.snapshots == everywhere(0)
    assert "Test interrupted." in run.log
    assert not any("Test net output" in line for line in run.log)


@pytest.mark.parametrize("overrides", ["", TREE, MASTERS])
def test_a_snapshot_in_a_test(overrides: str) -> None:
    expected = train(1)
    noted = Noted()
    run = in_a_test(SignalAction.SNAPSHOT, overrides, noted)
    assert noted.snapshots == everywhere(0, 9)
    assert_same_lines(run.lines, expected.lines)
    assert Saved.read(0).rest.iter == 0


def test_a_snapshot_in_a_test_of_averaged_weights() -> None:
    """It used to have the averages for weights."""
    overrides = "test_interval: 3 average_param { decay: 0.6 start: 2 }"
    expected = train(1, overrides)
    noted = Noted()
    # Two batches of the first test, three iterations, two batches of the second: then those of the averages.
    train(3, overrides, signals=on(1, 2 + 3 + 2, SignalAction.SNAPSHOT), each=noted)
    assert noted.snapshots == everywhere(3, 9)
    resumed = train(1, overrides, resume="small_iter_3.solverstate")
    ours, theirs = (
        [line for line in run.lines if re.match(r"Iteration [69], loss", line.words)] for run in (resumed, expected)
    )
    assert_same_lines(ours, theirs)  # data of tests have gone on meanwhile


def test_what_was_subtracted_last_is_kept_also_where_weights_have_been_sent_since() -> None:
    """``snapshot_diff``: Nesterov's updates stand where its gradients stood, which came from a message."""
    # A signal in the test after the fourth iteration: 2 batches, then 4 iterations, then the first batch.
    nesterov = 'type: "Nesterov" snapshot_diff: true test_interval: 4'
    found = []
    for ranks in (1, 2):
        train(ranks, nesterov, TREE, signals=on(0, 2 + 4, SignalAction.SNAPSHOT))
        model = Path("small_iter_4.caffemodel")
        found.append(diffs_of(model))
        model.unlink()
    alone, both = found
    assert alone.keys() == both.keys()
    for name, diff in alone.items():
        assert both[name] == pytest.approx(diff, rel=1e-3, abs=1e-6), name


def diffs_of(path: Path) -> dict[str, list[float]]:
    net = pb.NetParameter.FromString(path.read_bytes())
    return {f"{layer.name}/{i}": list(blob.diff) for layer in net.layer for i, blob in enumerate(layer.blobs)}
