"""``bpt time``: Caffe's lines, the update, the layout that training would choose; nothing is written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from bpt.apps.commands.job import Job
from bpt.base.errors import PrototxtError, UsageError
from bpt.base.log import start_logging
from bpt.cli.main import COMMANDS, make_parser
from bpt.perf.speeds import profiling
from bpt.perf.timing import benchmark, peaks, phases
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.paths import GOLDEN
from tests.support.small_solver import SOLVER, small_solver


def lines_of(log: str) -> list[str]:
    """The lines from the first pass to the end of the benchmark, without place and numbers.

    Left out are our choice of an engine, and what Caffe's data layer says whenever it begins again.
    """
    texts = [re.sub(r"(?<=: )[\d.e+-]+|(?<=Iteration: )\d+", "N", line.partition("] ")[2]) for line in log.splitlines()]
    start, end = texts.index("Performing Forward"), texts.index("*** Benchmark ends ***")
    return [text for text in texts[start:end] if not text.startswith(("Engine: ", "Restarting data "))]


@pytest.mark.parametrize(("name", "phase"), [("time_lenet", "TRAIN"), ("time_lenet_test_phase", "TEST")])
@pytest.mark.usefixtures("inputs")
def test_the_lines_are_caffes(name: str, phase: str, bpt: Bpt) -> None:
    recorded = (GOLDEN / "cli" / f"{name}.stderr.txt").read_text()
    outcome = bpt("time", "--model=lenet_train_test.prototxt", "--iterations=5", f"--phase={phase}")
    assert outcome.status == 0
    assert lines_of(outcome.err) == lines_of(recorded)
    texts = [line.partition("] ")[2] for line in outcome.err.splitlines()]
    assert outcome.out.splitlines() == texts[texts.index("*** Benchmark ends ***") + 1 :]


@pytest.mark.usefixtures("inputs")
def test_the_layout_is_measured_and_told(bpt: Bpt) -> None:
    log = bpt("time", "--model=lenet_train_test.prototxt", "--iterations=1").err
    choice = r"Engine: (CONTIGUOUS|CHANNELS_LAST) \(CONTIGUOUS \S+ ms, CHANNELS_LAST \S+ ms an iteration\)"
    assert re.search(choice, log)


@pytest.mark.usefixtures("inputs")
def test_a_solver_is_timed_with_its_update_in_its_layout(bpt: Bpt) -> None:
    outcome = bpt("time", "--solver=solver.prototxt", "--iterations=2", "--set", "engine: CONTIGUOUS")
    assert outcome.status == 0
    assert re.search(r"\] Average Update: [\d.e-]+ ms\.", outcome.err)
    assert "Engine: CONTIGUOUS\n" in outcome.err
    [row] = [line for line in outcome.err.splitlines() if "] update " in line]
    assert re.search(r"update +[\d.]+ ± [\d.]+$", row)


def test_nothing_is_tested_or_written(bpt: Bpt, inputs: Path) -> None:
    (inputs / "file").touch()
    net = inputs / "lenet_train_test.prototxt"
    net.write_text(net.read_text().replace("digits_test_lmdb", "no_such_lmdb"))
    before = sorted(inputs.rglob("*"))
    outcome = bpt(
        "time", "--solver=solver.prototxt", "--iterations=1", "--set", 'snapshot_prefix: "file/x" weights: "nope"'
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert "Test" not in outcome.err.replace("Testing for 1 iterations", "")
    assert sorted(inputs.rglob("*")) == before


def test_level_and_stage_choose_the_layers(bpt: Bpt, inputs: Path) -> None:
    net = inputs / "lenet_train_test.prototxt"
    more = 'layer { name: "more" type: "Silence" bottom: "pool2" include { stage: "s" min_level: 2 } }'
    net.write_text(net.read_text() + more)
    for source in ("--model=lenet_train_test.prototxt", "--solver=solver.prototxt"):
        arguments = ("time", source, "--iterations=1")
        assert "more\tforward" not in bpt(*arguments).err
        assert "more\tforward" in bpt(*arguments, "--level=2", "--stage=r,s").err


def test_a_net_without_loss_or_data_is_timed(bpt: Bpt, inputs: Path) -> None:
    (inputs / "deploy.prototxt").write_text(
        """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4 } }
        """
    )
    outcome = bpt("time", "--model=deploy.prototxt", "--iterations=1", "--phase=TEST")
    assert outcome.status == 0
    assert "thread" not in outcome.err  # no data layer, so no wait for data


@pytest.fixture
def quick_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "SIZES", {"cpu": (32,)})
    monkeypatch.setattr(peaks, "_array_bytes", lambda device: 2**20)


@pytest.mark.parametrize(
    "source",
    [
        ["--model=lenet_train_test.prototxt"],
        ["--model=lenet_train_test.prototxt", "--phase=TEST"],
        ["--solver=solver.prototxt", "--set", "precision: FLOAT64 parallel_param { inner_param { num_threads: 1 } }"],
    ],
)
@pytest.mark.usefixtures("inputs", "quick_peaks")
def test_the_roofline_is_shown_behind_the_table(source: list[str], bpt: Bpt) -> None:
    outcome = bpt("time", *source, "--iterations=2", "--roofline")
    assert outcome.status == 0, outcome.err
    log = outcome.err[outcome.err.index("whole net") :]
    assert re.search(rf"Roofline of {'FLOAT64' if 'FLOAT64' in str(source) else 'FLOAT32'}, \d+ threads?:", log)
    assert re.search(r"Compute roof: [\d.]+ ± [\d.]+ GFLOP/s, product of 32 × 32 matrices\.", log)
    assert re.search(r"\] conv1 +Convolution +forward +(compute|memory) ", log)
    assert re.search(r"\] conv1 +Convolution +backward +(compute|memory) ", log)
    assert "For a picture give --roofline a file that ends in .png or .svg." in log


@pytest.mark.usefixtures("quick_peaks")
def test_the_picture_of_the_roofline(bpt: Bpt, inputs: Path) -> None:
    outcome = bpt("time", "--model=lenet_train_test.prototxt", "--iterations=1", "--roofline", "roof.svg")
    assert outcome.status == 0, outcome.err
    assert "Picture: roof.svg" in outcome.err
    assert (inputs / "roof.svg").read_text().startswith("<?xml")


@pytest.mark.usefixtures("inputs", "quick_peaks")
def test_without_matplotlib_the_roofline_comes_without_its_picture(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = bpt("time", "--model=lenet_train_test.prototxt", "--iterations=1", "--roofline=roof.svg")
    assert "both, whole net" in outcome.err
    assert outcome.error == "figures need the package matplotlib: pip install 'bpt[plot]'"
    assert outcome.status == 2


@pytest.mark.usefixtures("inputs", "bpt")
def test_rooflines_are_of_one_process() -> None:
    with pytest.raises(UsageError, match="--roofline measures one process: leave mpirun out"):
        on_ranks(2, "--solver=solver.prototxt", "--roofline")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=a", "--solver=b"], "bpt time needs one of --model and --solver: what to time"),
        (["--solver=b", "--phase=TEST"], "--phase TEST goes with --model; a solver is timed as it trains"),
        (["--model=a", "--set=max_iter: 1"], "--set overrides a solver's fields; it goes with --solver"),
        (["--model=a", "--iterations=0"], '--iterations: takes a whole number of at least 1, found "0" '),
        (["--model=a", "--iterations=x"], '--iterations: takes a whole number of at least 1, found "x" '),
        (["--model=a", "--phase=train"], "--phase: invalid choice: 'train' "),
        (["--model=a", "--profile=p"], "--profile measures what a solver's ranks can do; it goes with --solver"),
        (["--solver=a", "--profile=p", "--roofline"], "--roofline and --profile measure different things; give one"),
        (["--roofline", "a.prototxt"], "bpt time needs one of --model and --solver: what to time"),
        (["--model=a", "--roofline=b.pdf"], "--roofline b.pdf: writes files that end in .png or .svg"),
        (["--model=a", "--roofline=no/b.png"], "no/b.png: cannot be written: there is no folder "),
    ],
)
def test_mistakes(arguments: list[str], message: str, bpt: Bpt) -> None:
    outcome = bpt("time", *arguments)
    assert outcome.error.startswith(message)
    assert outcome.status == 2


def on_ranks(ranks: int, *words: str) -> None:
    arguments = make_parser().parse_args(["time", *words])
    run_ranks(ranks, lambda comm: COMMANDS["time"].run(arguments, Job(comm, comm.rank, comm.size)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is done instead of measuring."""
    calls: list[tuple[object, ...]] = []
    for module, name in ((benchmark, "time_solver"), (phases, "time_ranks"), (profiling, "profile")):
        monkeypatch.setattr(module, name, lambda *args, name=name: calls.append((name, *args[2:])))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    return calls


@pytest.mark.usefixtures("inputs", "bpt")
def test_ranks_time_training_itself(asked: list[tuple[object, ...]]) -> None:
    on_ranks(1, "--solver=solver.prototxt", "--iterations=3")
    assert asked == [("time_solver", 3, None)]
    asked.clear()
    on_ranks(2, "--solver=solver.prototxt", "--iterations=3")
    assert [(name, world.size, iterations) for name, world, iterations in asked] == [("time_ranks", 2, 3)] * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.usefixtures("inputs", "bpt")
def test_profiles_are_of_solvers(ranks: int, asked: list[tuple[object, ...]]) -> None:
    on_ranks(ranks, "--solver=solver.prototxt", "--profile=speed.json")
    assert [(name, world.size, path) for name, world, path in asked] == [("profile", ranks, "speed.json")] * ranks  # type: ignore[attr-defined]


@pytest.mark.usefixtures("inputs", "bpt")
def test_workers_of_the_outer_layer_are_timed_on_one_process() -> None:
    with pytest.raises(PrototxtError) as caught:
        on_ranks(2, "--solver=solver.prototxt", "--set=parallel_param { exchange: AGWU }")
    assert str(caught.value) == (
        "parallel_param: exchange: AGWU lets each worker train by itself: run bpt time "
        "without mpirun to time a worker\n"
        "  --set 'parallel_param { exchange: AGWU }'\n"
        "                          ^"
    )


def test_a_model_is_timed_on_one_process() -> None:
    with pytest.raises(UsageError) as caught:
        on_ranks(2, "--model=lenet_train_test.prototxt")
    assert str(caught.value) == (
        "--model times one process: leave mpirun out, or give --solver to time training on all ranks"
    )


def test_the_tables_of_many_ranks(bpt: Bpt, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Phases by rank and traffic by layer, from the training loop; nothing is tested or written."""
    source = small_solver(tmp_path, text=SOLVER)
    before = sorted(tmp_path.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda number: None)
        # Ranks that are threads have one log; the last one to begin must not close it.
        patch.setattr("bpt.apps.commands.job.start_logging", lambda first, places: start_logging())
        on_ranks(2, f"--solver={source.path}", "--iterations=2")
    texts = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert texts.count("Training, mean of 2 iterations in ms:") == 2  # one a thread
    rows = {tuple(text.split()[:2]) for text in texts}
    assert {("rank", "host"), ("X0", "conv/0"), ("W", "all")} <= rows
    assert sorted(tmp_path.iterdir()) == before
