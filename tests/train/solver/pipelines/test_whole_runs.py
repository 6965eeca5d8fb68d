"""A whole run on pipelines is that of one process: the same log, tests and displays in between, the same snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.signals import SignalAction
from tests.support import spread_runs
from tests.support.marks import slow
from tests.support.signalled_runs import UNTESTED, Noted, on
from tests.support.spread_runs import Run, Saved, assert_same_lines, remove_snapshots, train
from tests.train.solver.pipelines import branched
from tests.train.solver.pipelines.pipeline_runs import BRANCHED, CGDP, NORMALISED, RING, TREE, place, place_all

SEARCHED = "parallel_param { exchange: CGDP cgdp_param { interval: 1 } }"


def pipeline(stages: int, schedule: str, micro_batches: int = 1) -> str:
    param = f"schedule: {schedule} micro_batches: {micro_batches} allocator: MANUAL"
    return f'parallel_param {{ num_stages: {stages} pipeline_param {{ {param} }} }} net: "{stages}.prototxt"'


RECOMPUTE = "parallel_param { pipeline_param { recompute: true } }"
TWO, THREE, FOUR = pipeline(2, "GPIPE", 3), pipeline(3, "ONE_F_ONE_B", 2), pipeline(4, "SEQUENTIAL", 4)


@pytest.fixture(name="normalised")
def set_up_normalised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a net that has a BatchNorm."""
    monkeypatch.chdir(tmp_path)
    spread_runs.set_up(tmp_path)
    place_all(NORMALISED)
    return tmp_path


@pytest.fixture(name="branched")
def set_up_branched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    branched.set_up(tmp_path)
    place_all(BRANCHED)
    return tmp_path


def alone(*overrides: str) -> tuple[Run, Saved, Saved]:
    run = train(1, "snapshot: 5", *overrides)
    saved = Saved.read(5), Saved.read(9)
    remove_snapshots()
    return run, *saved


def assert_same_run(ranks: int, *overrides: str) -> None:
    """``overrides`` must not change what one process does."""
    expected, middle, end = alone()
    run = train(ranks, "snapshot: 5", *overrides)
    assert run.iterations == [9] * ranks
    assert_same_lines(run.lines, expected.lines)
    Saved.read(5).check(middle)
    Saved.read(9).check(end)


@pytest.mark.usefixtures("normalised")
@pytest.mark.parametrize(
    ("ranks", "stages", "schedule", "exchange"),
    [
        slow(2, 2, "SEQUENTIAL", ""),
        (3, 3, "GPIPE", ""),
        (4, 4, "ONE_F_ONE_B", ""),
        slow(4, 2, "SEQUENTIAL", ""),
        slow(4, 2, "GPIPE", TREE),
        slow(4, 2, "GPIPE", RING),
        slow(6, 3, "SEQUENTIAL", CGDP),
        (4, 2, "ONE_F_ONE_B", SEARCHED),
        (3, 3, "ZERO_BUBBLE", RECOMPUTE),
    ],
)
def test_undivided_batches(ranks: int, stages: int, schedule: str, exchange: str) -> None:
    """``sync_batch_norm`` is on."""
    assert_same_run(ranks, pipeline(stages, schedule), exchange)


OVER_BATCH = "parallel_param { pipeline_param { batch_norm_over: BATCH } }"


@pytest.mark.usefixtures("normalised")
@pytest.mark.parametrize(
    ("ranks", "stages", "schedule", "micro_batches", "exchange"),
    [
        slow(2, 2, "GPIPE", 3, ""),
        (3, 3, "ONE_F_ONE_B", 2, ""),
        slow(4, 4, "SEQUENTIAL", 4, ""),
        slow(2, 2, "GPIPE", 8, ""),  # micro-batches without samples
        (4, 2, "GPIPE", 2, RING),
        slow(6, 3, "ONE_F_ONE_B", 3, CGDP),
        (4, 2, "GPIPE", 2, "parallel_param { inner_param { engine: TASK_DAG num_threads: 2 } }"),
    ],
)
def test_batch_norm_over_all_micro_batches(
    ranks: int, stages: int, schedule: str, micro_batches: int, exchange: str
) -> None:
    """``sync_batch_norm`` is on, and ``iter_size`` is 2."""
    assert_same_run(ranks, pipeline(stages, schedule, micro_batches), exchange, OVER_BATCH)


@pytest.mark.usefixtures("normalised")
@pytest.mark.slow
def test_a_micro_batch_is_normalised_over_replicas() -> None:
    """By ``sync_batch_norm``: a curve of its own, that of however many stages."""
    train(4, "snapshot: 5", pipeline(2, "GPIPE", 2))
    two = Saved.read(9)
    remove_snapshots()
    train(6, "snapshot: 5", pipeline(3, "ONE_F_ONE_B", 2))
    Saved.read(9).check(two)
    remove_snapshots()
    train(4, "snapshot: 5", pipeline(2, "GPIPE", 2), "parallel_param { sync_batch_norm: false }")
    with pytest.raises(AssertionError):
        Saved.read(9).check(two)


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("ranks", "schedule"), [(3, "GPIPE"), (3, "ONE_F_ONE_B"), pytest.param(6, "SEQUENTIAL", marks=pytest.mark.slow)]
)
def test_losses_that_count_labels_wait_for_all_micro_batches(ranks: int, schedule: str) -> None:
    """Of one head near the bottom, whose scores are read again above, and of that at the top."""
    net = Path("net.prototxt")
    text = net.read_text()
    for name, label in (("early", 1), ("loss", 2)):
        text = text.replace(f'name: "{name}" type', f'name: "{name}" loss_param {{ ignore_label: {label} }} type')
    net.write_text(text)
    place_all(BRANCHED)
    assert_same_run(ranks, pipeline(3, schedule, 3))


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("ranks", "stages", "schedule", "micro_batches", "exchange"),
    [
        slow(2, 2, "GPIPE", 2, ""),
        (3, 3, "GPIPE", 3, ""),
        pytest.param(4, 4, "ONE_F_ONE_B", 6, "", marks=pytest.mark.slow),
        slow(2, 2, "ONE_F_ONE_B", 8, ""),  # micro-batches without samples
        (4, 2, "GPIPE", 4, TREE),  # a rank has 3 samples, and a micro-batch none
        pytest.param(4, 2, "ONE_F_ONE_B", 3, RING, marks=pytest.mark.slow),
        slow(6, 3, "ONE_F_ONE_B", 2, CGDP),
        pytest.param(3, 3, "SEQUENTIAL", 4, "", marks=pytest.mark.slow),
        (4, 2, "ZERO_BUBBLE", 3, CGDP),
        (3, 3, "GPIPE", 2, RECOMPUTE),
        slow(3, 3, "ZERO_BUBBLE", 4, RECOMPUTE),
    ],
)
def test_micro_batches(ranks: int, stages: int, schedule: str, micro_batches: int, exchange: str) -> None:
    assert_same_run(ranks, pipeline(stages, schedule, micro_batches), exchange)


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("ranks", "schedule"), [(3, "SEQUENTIAL"), (3, "GPIPE"), pytest.param(6, "ONE_F_ONE_B", marks=pytest.mark.slow)]
)
def test_stages_that_are_not_contiguous(ranks: int, schedule: str) -> None:
    """Stage 0 has the first and the last layers, and data go to all."""
    place(conv=0, head=2, left=1, sum=2, both=1, point=2, all=0)
    assert_same_run(ranks, pipeline(3, schedule, 2))


@pytest.mark.usefixtures("branched")
def test_a_weight_that_is_trained_slowly_and_one_that_is_not() -> None:
    """A stage without anything to train updates nothing, and sends no diff to those below it."""
    net = Path("net.prototxt")
    text = net.read_text()
    for layer in ("conv", "head"):
        text = text.replace(f'name: "{layer}"', f'name: "{layer}" param {{ lr_mult: 0 }} param {{ lr_mult: 0 }}', 1)
    net.write_text(text.replace('name: "fc"', 'name: "fc" param { lr_mult: 0.1 }', 1))
    place_all(BRANCHED)
    assert_same_run(3, pipeline(3, "GPIPE", 2))


@pytest.mark.usefixtures("branched")
def test_adam() -> None:
    adam = 'type: "Adam" momentum2: 0.99 base_lr: 0.01 max_iter: 5 snapshot: 0'
    expected = train(1, adam)
    end = Saved.read(5)
    assert_same_lines(train(4, adam, pipeline(2, "ONE_F_ONE_B", 3)).lines, expected.lines)
    Saved.read(5).check(end)


@pytest.mark.usefixtures("branched")
def test_a_batch_a_replica() -> None:
    """Two replicas with 6 samples each train like one process with 12; a test is that of one process."""
    replicas = train(4, TWO, "parallel_param { batch_scope: REPLICA }")
    ends = Saved.read(9)
    net = Path("net.prototxt")
    net.write_text(net.read_text().replace("batch_size: 6", "batch_size: 12"))
    assert_same_lines(replicas.lines, train(1).lines)
    ends.check(Saved.read(9))


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize("engine", ["CHANNELS_LAST", "AUTO"])
def test_the_memory_layout(engine: str) -> None:
    expected = train(1)
    run = train(2, f"engine: {engine}", pipeline(2, "GPIPE", 3))
    assert_same_lines(run.lines, expected.lines, 1e-4)


@pytest.mark.usefixtures("branched")
def test_two_test_nets_that_are_unlike_the_training_net() -> None:
    """One has other layers on top, and one ends early: a stage has nothing to do in it."""
    more = 'layer { name: "more" type: "TanH" bottom: "head" top: "more" } '
    Path("deep.prototxt").write_text(branched.NET.replace('layer { name: "scores"', more + 'layer { name: "scores"'))
    Path("short.prototxt").write_text(branched.NET[: branched.NET.index('layer { name: "left"')])
    nets = 'test_net: "deep.prototxt" test_net: "short.prototxt" test_iter: 2 test_iter: 3 max_iter: 4'
    expected = train(1, nets)
    assert any("Testing net (#1)" in line.words for line in expected.lines)
    assert_same_lines(train(3, nets, pipeline(3, "GPIPE", 2)).lines, expected.lines)


# Snapshots


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(
    ("first", "then"),
    [slow((2, TWO), (3, THREE)), ((6, THREE), (1, "")), ((1, ""), (4, TWO)), slow((4, FOUR), (2, ""))],
)
def test_the_curve_goes_on(first: tuple[int, str], then: tuple[int, str]) -> None:
    """Whatever the number of stages."""
    straight = train(1)
    end = Saved.read(9)
    train(first[0], "snapshot: 5 max_iter: 7", first[1])
    resumed = train(then[0], then[1], resume="small_iter_5.solverstate")
    assert resumed.iterations == [9] * then[0]
    assert_same_lines(resumed.lines, straight.since(6))
    Saved.read(9).check(end)


@pytest.mark.usefixtures("normalised")
def test_stored_statistics_are_in_the_snapshot() -> None:
    """That of any stage; and the test of a resumed run sees them."""
    straight = train(1)
    end = Saved.read(9)
    train(4, "snapshot: 5 max_iter: 7", pipeline(4, "SEQUENTIAL"))
    resumed = train(2, pipeline(2, "SEQUENTIAL"), resume="small_iter_5.solverstate")
    assert_same_lines(resumed.lines, straight.since(6))
    Saved.read(9).check(end)


# BatchNorm in micro-batches


@pytest.mark.usefixtures("normalised")
@pytest.mark.parametrize(
    ("stages", "schedule", "more"),
    [(2, "GPIPE", ""), (3, "ONE_F_ONE_B", ""), (2, "ZERO_BUBBLE", ""), (3, "ONE_F_ONE_B", RECOMPUTE)],
)
def test_a_micro_batch_is_normalised_as_a_batch_of_iter_size_is(stages: int, schedule: str, more: str) -> None:
    """6 samples in 3 micro-batches, twice an iteration, are 6 batches of 2; the statistics, too."""
    single = "parallel_param { sync_batch_norm: false } snapshot: 5 clip_gradients: -1 display: 4"
    net = Path("net.prototxt")
    text = net.read_text().replace('layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }\n', "")
    assert "Dropout" not in text  # its masks know of passes
    net.write_text(text.replace("batch_size: 6", "batch_size: 2"))
    expected = train(1, single, "iter_size: 6")
    middle, end = Saved.read(5), Saved.read(9)
    remove_snapshots()
    net.write_text(text)
    place_all(NORMALISED)
    run = train(stages, single, pipeline(stages, schedule, 3), more)
    shown = [line for line in expected.lines if "Train net" not in line.words]
    assert_same_lines([line for line in run.lines if "Train net" not in line.words], shown)
    Saved.read(5).check(middle)
    Saved.read(9).check(end)
    whole = train(1, single)
    with pytest.raises(AssertionError):
        assert_same_lines(whole.lines, run.lines)  # it does matter


# Signals


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize(("ranks", "rank"), [(3, 0), (3, 2), (6, 4)])
def test_a_stop_on_one_rank(ranks: int, rank: int) -> None:
    straight = train(1, UNTESTED)
    remove_snapshots()
    noted = Noted()
    run = train(ranks, UNTESTED, THREE, signals=on(rank, 4, SignalAction.STOP, term=True), each=noted)
    assert run.iterations == [5] * ranks
    assert noted.snapshots == {other: [5] for other in range(ranks)}
    assert [solver.terminated for solver in noted.solvers] == [True] * ranks
    assert_same_lines(train(2, UNTESTED, TWO, resume="auto").lines, straight.since(6))


@pytest.mark.usefixtures("branched")
@pytest.mark.parametrize("action", [SignalAction.SNAPSHOT, SignalAction.STOP])
def test_a_signal_in_a_test(action: SignalAction) -> None:
    """Rank 1 gets it before the second batch of the first test."""
    noted = Noted()
    run = train(3, THREE, signals=on(1, 1, action), each=noted)
    stopped = action is SignalAction.STOP
    assert run.iterations == [0 if stopped else 9] * 3
    assert noted.snapshots == {rank: [0] if stopped else [0, 9] for rank in range(3)}


# What is said


@pytest.mark.usefixtures("branched")
def test_what_is_said_about_a_pipeline() -> None:
    log = train(4, TWO, "max_iter: 1").log
    assert [line for line in log if line.startswith(("Parallel", "Stage"))] == [
        "Parallel: 4 ranks = 2 replicas × 2 stages; ALLREDUCE, balance UNIFORM, pipeline GPIPE of 3 micro-batches",
        "Stage 0: 11 layers, data … right",
        "Stage 1: 13 layers, sum … scores",
    ]
