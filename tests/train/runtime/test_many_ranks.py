"""A whole run on many ranks is that of one process: the same log, tests and displays in between, the same snapshots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.parallel.exchange import buckets
from bpt.train.runtime import parallel
from bpt.train.solver.solver import Solver
from tests.support import spread_runs
from tests.support.delays import delay_streams
from tests.support.doubles.thread_ranks import ThreadCommunicator
from tests.support.marks import slow

pytestmark = pytest.mark.usefixtures("folder")

PEERS = "parallel_param { num_shards: 2 }"
MASTERS = "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"
PIECES = "parallel_param { fc_param { pieces: 2 } }"
TREE = "parallel_param { exchange: TREE }"
LIBRARY = "parallel_param { exchange: TREE tree_param { sends: LIBRARY } }"
CGDP = "parallel_param {{ exchange: CGDP cgdp_param {{ chunk_size: {} }} }}"
SEARCHED = "parallel_param { exchange: CGDP cgdp_param { interval: 1 } }"
TASKS = "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"
STATIC = 'parallel_param { balance: STATIC balance_param { profile: "speed.json" } }'


def alone(*overrides: str) -> tuple[spread_runs.Run, spread_runs.Saved, spread_runs.Saved]:
    run = spread_runs.train(1, "snapshot: 5", *overrides)
    saved = spread_runs.Saved.read(5), spread_runs.Saved.read(9)
    spread_runs.remove_snapshots()
    return run, *saved


@pytest.mark.parametrize(
    ("ranks", "overrides"),
    [
        (2, [""]),
        (3, [TREE]),
        slow(3, [LIBRARY]),
        (3, [STATIC]),
        (2, [PEERS]),
        (2, [MASTERS]),
        slow(4, [TREE, PEERS]),
        (4, [TREE, MASTERS]),
        (2, [PEERS, PIECES]),
        (2, [MASTERS, PIECES, TASKS]),
        slow(2, [CGDP.format(1)]),
        (3, [CGDP.format(2), STATIC]),
        slow(4, [CGDP.format(1), PEERS]),
        slow(4, [CGDP.format(9), MASTERS]),
        (3, [SEARCHED]),
        slow(7, [CGDP.format(1)]),
        slow(1, [TASKS]),
        (2, [TASKS]),
        (2, [TASKS, CGDP.format(1)]),
        (7, [""]),  # a rank without samples, and two in tests
    ],
)
def test_the_run_of_one_process(ranks: int, overrides: list[str]) -> None:
    if STATIC in overrides:
        spread_runs.write_speeds(1, 3, 1)
    expected, middle, end = alone()
    run = spread_runs.train(ranks, "snapshot: 5", *overrides)
    assert run.iterations == [9] * ranks
    spread_runs.assert_same_lines(run.lines, expected.lines)
    spread_runs.Saved.read(5).check(middle)
    spread_runs.Saved.read(9).check(end)


def test_a_net_of_the_model_parallel_paper(folder: Path) -> None:
    """Its layers are called MpiFc; on 3 slaves they are those of one process that calls them InnerProduct."""
    expected, _, end = alone()
    net = folder / "net.prototxt"
    net.write_text(net.read_text().replace('"InnerProduct"', '"MpiFc"'))
    run = spread_runs.train(4, "parallel_param { num_shards: 4 fc_param { scheme: MASTER_SLAVE } }")
    spread_runs.assert_same_lines(run.lines, expected.lines)
    spread_runs.Saved.read(9).check(end)


@pytest.mark.parametrize("overrides", ["", PEERS, MASTERS, TREE])
@pytest.mark.slow
def test_many_segments_and_messages(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are exchanged layer by layer while backward goes on, the larger ones by themselves."""
    monkeypatch.setattr(parallel, "SEGMENT", 20)
    monkeypatch.setattr(buckets, "LARGE", 20)
    expected, middle, end = alone()
    cuts: set[int] = set()
    run = spread_runs.train(
        4, "snapshot: 5", overrides, each=lambda solver: cuts.add(len(solver.runtime.nets.train.operator.segments))
    )
    assert min(cuts) > 3
    spread_runs.assert_same_lines(run.lines, expected.lines)
    spread_runs.Saved.read(5).check(middle)
    spread_runs.Saved.read(9).check(end)


@pytest.mark.parametrize("exchange", ["", TREE, CGDP.format(0)])
def test_looking_at_every_layer_changes_nothing(exchange: str) -> None:
    """Each rank shows what it has of them."""
    expected, middle, end = alone()
    run = spread_runs.train(2, "snapshot: 5 debug_info: true", exchange)
    assert sum(line.startswith("    [Backward] Layer conv, param blob 0 diff: ") for line in run.log) == 2 * 3
    spread_runs.assert_same_lines(run.lines, expected.lines)
    spread_runs.Saved.read(5).check(middle)
    spread_runs.Saved.read(9).check(end)


def test_looking_sees_gradients_before_the_exchange() -> None:
    """Under CGDP sums come into the gradients while backward runs, so it must wait until all have been looked at."""

    def looked(exchange: str) -> list[spread_runs.Line]:
        run = spread_runs.train(2, "debug_info: true max_iter: 3", exchange)
        return [spread_runs.Line.of(line) for line in run.log if line.startswith("    [")]

    spread_runs.assert_same_lines(looked(CGDP.format(1)), looked(""))


@pytest.mark.parametrize("overrides", ["", PEERS, TREE, CGDP.format(1), SEARCHED])
def test_a_library_that_allows_calls_from_one_thread_only(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing overlaps then, and all else is the same."""
    expected = spread_runs.train(1)
    end = spread_runs.Saved.read(9)
    monkeypatch.setattr(ThreadCommunicator, "concurrent", False)
    helpers: list[object] = []

    def note(solver: Solver) -> None:
        runtime = solver.runtime
        runtime.updater.before_update.append(lambda loss: helpers.append(runtime.parallel.comm_thread._thread))

    spread_runs.assert_same_lines(spread_runs.train(2, overrides, each=note).lines, expected.lines)
    assert set(helpers) == {None}
    spread_runs.Saved.read(9).check(end)


def test_adam_on_slices() -> None:
    adam = 'type: "Adam" momentum2: 0.99 base_lr: 0.01 max_iter: 5'
    expected = spread_runs.train(1, adam)
    end = spread_runs.Saved.read(5)
    spread_runs.assert_same_lines(spread_runs.train(4, adam, PEERS).lines, expected.lines)
    spread_runs.Saved.read(5).check(end)


def test_what_is_said_about_a_run() -> None:
    """The lines of one process, and those about the ranks."""
    lines = spread_runs.train(1).log
    more = spread_runs.train(2).log
    assert [line for line in more if line.startswith(("Parallel", "Balance"))] == [
        "Parallel: 2 ranks = 2 replicas; ALLREDUCE, balance UNIFORM",
        "Balance: rank 0 trains 3 of 6 samples",
        "Balance: rank 1 trains 3 of 6 samples",
        *(line for line in more if line.startswith("Balance: ") and "seen" in line),
    ]
    assert sum("seen" in line for line in more) == 3  # each rank, and the imbalance
    starts = [line.split("(")[0].split("=")[0] for line in more if not line.startswith(("Parallel", "Balance"))]
    assert starts == [line.split("(")[0].split("=")[0] for line in lines]


def test_the_last_loss_of_a_tree_is_of_the_last_weights() -> None:
    """Others than the first rank are an update behind until they get its weights."""
    settings = "max_iter: 3 test_interval: 100 average_loss: 1 base_lr: 0.5"
    expected = spread_runs.train(1, settings).lines
    lines = spread_runs.train(3, settings, TREE).lines
    assert lines[-1].words == "Iteration 3, loss = N"
    spread_runs.assert_same_lines(lines, expected)


def test_double_precision_shows_no_difference_at_all() -> None:
    double = "precision: FLOAT64"
    expected, run = spread_runs.train(1, double), spread_runs.train(3, double, TREE)
    losses = [line for line in run.lines if line.words.endswith((", loss = N", "Test loss: N"))]
    assert len(losses) == 4 + 3  # displayed, and of tests
    assert [line for line in expected.lines if line in losses] == losses  # all six digits


def test_statistics_come_from_ranks_with_samples() -> None:
    """The first rank is so slow that it gets none; without ``sync`` the statistics are the second one's."""
    spread_runs.write_speeds(1000, 1)
    single = "parallel_param { sync_batch_norm: false }"
    expected, _, end = alone(single)
    run = spread_runs.train(2, STATIC, single)
    assert "Balance: rank 0 trains 0 of 6 samples" in "\n".join(run.log)
    spread_runs.assert_same_lines(run.lines, expected.lines)
    spread_runs.Saved.read(9).check(end)


def test_a_batch_a_replica() -> None:
    """Two replicas with 6 samples each train like one process with 12; a test is that of one process."""
    replicas = spread_runs.train(2, "parallel_param { batch_scope: REPLICA }")
    ends = spread_runs.Saved.read(9)
    net = Path("net.prototxt")
    net.write_text(net.read_text().replace("batch_size: 6", "batch_size: 12"))
    spread_runs.assert_same_lines(replicas.lines, spread_runs.train(1).lines)
    ends.check(spread_runs.Saved.read(9))


def test_a_test_batch_that_training_has_no_room_for() -> None:
    spread_runs.write_speeds(1, 1, caps=4)
    net = Path("net.prototxt")
    net.write_text(net.read_text().replace("batch_size: 5", "batch_size: 11"))
    expected = spread_runs.train(1)
    spread_runs.assert_same_lines(spread_runs.train(2, STATIC).lines, expected.lines)


@pytest.mark.parametrize("overrides", ["", TREE])
def test_the_memory_layout_is_settled_together(overrides: str) -> None:
    engines = []
    spread_runs.train(
        2,
        "engine: AUTO max_iter: 12",
        overrides,
        each=lambda solver: engines.append(solver.runtime.nets.train.operator),
    )
    first, second = engines
    assert first.engine == second.engine
    assert spread_runs.Saved.read(12).rest.engine == first.engine


@pytest.mark.slow
def test_a_thousand_iterations_with_delays_are_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """CGDP with every stage of every stream delayed at random: bit for bit the same, and the curve of one process."""
    overrides = "max_iter: 1000 snapshot: 1000 test_interval: 500 display: 100"
    alone = spread_runs.train(1, overrides)
    spread_runs.remove_snapshots()
    without = spread_runs.train(3, overrides, CGDP.format(1))
    expected = spread_runs.read_model(1000)
    spread_runs.remove_snapshots()
    delay_streams(monkeypatch, apart=True)
    delayed = spread_runs.train(3, overrides, CGDP.format(1))
    assert delayed.lines == without.lines
    for name, values in spread_runs.read_model(1000).items():
        np.testing.assert_array_equal(values, expected[name], name)
    spread_runs.assert_same_lines(delayed.lines, alone.lines, 1e-3)
