"""The arithmetic and the texts of ``scripts/bench bptcnn``; what it measures takes a quiet machine and root."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_solver
from bpt.data.lmdb_file import LmdbSource
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.perf.simulate.simulation import Strategy
from bpt.train.outer.report import write_csv
from scripts.benches.bptcnn import axes
from scripts.benches.bptcnn import bench as bptcnn
from scripts.benches.bptcnn.results import (
    LEVELS,
    RUNS,
    level_rows,
    level_table,
    most_waiting,
    points_lost,
    run_rows,
    seconds_to,
    standard_error,
    table,
    verdicts,
)
from scripts.benches.harness import digits as bptcnn_data
from scripts.benches.harness import outer_jobs as bptcnn_jobs
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.outer_jobs import NETS, RIVAL, Jobs, Work, cores_used
from scripts.benches.harness.testbed import TESTBED
from tests.scripts.bptcnn_runs import FOUR, run, write_digits
from tests.support.bench_arguments import parse


def test_seconds_to_an_accuracy_are_those_of_all_runs() -> None:
    assert seconds_to(FOUR["AGWU+IDPA"], 0.95) == 9.0
    assert seconds_to(FOUR["AGWU+IDPA"][:1], 0.87) == 4.0
    assert seconds_to(FOUR["AGWU+IDPA"], 0.96) == math.inf  # the second one never reached it


def test_passes_to_the_accuracies_of_table_1() -> None:
    """Tests at 4 s (0.87) and 9 s (0.97) were after pass 1.0; those of one process (0.98) at 5 s."""
    found = {(way, level): (passes, seconds) for way, level, passes, seconds in level_rows(FOUR)}
    assert len(found) == len(FOUR) * len(LEVELS)
    assert found["SGWU+UDPA", 0.8] == (1.0, 4.0) and found["one process", 0.65] == (1.0, 5.0)
    low = {"AGWU+IDPA": [run(10.0, 0.97, 0.8), run(10.0, 0.97, 0.72, seed=2)]}
    assert [line.split() for line in level_table(low)][1] == ["AGWU+IDPA", "1", "1", "never", "never"]


def test_points_lost() -> None:
    assert points_lost(FOUR["AGWU+IDPA"], FOUR["one process"]) == pytest.approx(0.4)  # 97.9 - 97.5
    assert points_lost(FOUR["one process"], FOUR["AGWU+IDPA"]) == pytest.approx(-0.4)


def test_most_waiting() -> None:
    # b: 0.1 of 10 s and 0.6 of 12 s
    host, share = most_waiting(FOUR["AGWU+IDPA"])
    assert host == "b" and share == pytest.approx((0.01 + 0.05) / 2)


def test_standard_error() -> None:
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / 3**0.5)
    assert math.isnan(standard_error([1.0]))


def test_table() -> None:
    # waiting: (0.1 / 20 + 0.6 / 24) / 2; idle: (1 / 20 + 1 / 24) / 2; balance: 18 / 20
    assert list(table(FOUR, 0.96)) == [
        "way          seconds   least - most  x AGWU+IDPA  s to 0.96  waiting   idle  balance  staleness  accuracy %"
        "     ±  points lost",
        "SGWU+UDPA      20.00  20.00 - 20.00        1.818       9.00    0.25%  2.50%   0.9000       0.50       97.00"
        "              +0.90",
        "AGWU+IDPA      11.00  10.00 - 12.00        1.000    not all    1.50%  4.58%   0.9000       0.50       97.50"
        "  0.50        +0.40",
        "one process    15.00  15.00 - 15.00        1.364       5.00                                           97.90"
        "  0.40",
        "means of 2 runs, the ±: standard error of a mean. waiting, idle (at the end): of the nodes' time",
        "cores that others used before and after a run: 0.15 in the mean, 0.25 at most",
    ]


def test_verdicts() -> None:
    assert list(verdicts(FOUR)) == [
        "AGWU+IDPA is the fastest: one process takes 1.364 times as long: reached",
        "balance index of AGWU+IDPA: 0.9000, at least 0.95: missed",
        "worker on b waits most of AGWU+IDPA: 3.00% of the run, at most 2%: missed",
        "accuracy of AGWU+IDPA: +0.40 points lost against one process, at most 0.5: reached",
    ]
    assert list(verdicts({"SGWU+UDPA": FOUR["SGWU+UDPA"]})) == []


def test_run_rows() -> None:
    read = [dict(zip(RUNS, row, strict=True)) for row in run_rows(FOUR, 0.96)]
    assert [(row["way"], row["seed"]) for row in read] == [
        ("SGWU+UDPA", 1), ("AGWU+IDPA", 1), ("AGWU+IDPA", 2), ("one process", 1), ("one process", 2)
    ]  # fmt: skip
    assert read[2] == {
        "way": "AGWU+IDPA", "seed": 2, "seconds": 12.0, "seconds_to_level": "", "waiting": pytest.approx(0.025),
        "idle": pytest.approx(1 / 24), "balance_index": pytest.approx(0.9), "mean_staleness": 0.5,
        "test_accuracy": 0.95, "windows_accuracy": 0.98, "others": 0.25,
    }  # fmt: skip
    assert read[3]["mean_staleness"] == ""


def test_windows_are_all_parts_of_an_image() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(1, 3, 4)
    parts = [part.tolist() for part in bptcnn_data.windows(image, 2)]
    assert parts == [
        [[[0, 1], [4, 5]]], [[[1, 2], [5, 6]]], [[[2, 3], [6, 7]]],
        [[[4, 5], [8, 9]]], [[[5, 6], [9, 10]]], [[[6, 7], [10, 11]]],
    ]  # fmt: skip
    assert len(list(bptcnn_data.windows(np.zeros((1, 32, 32), np.uint8)))) * 360 == bptcnn.IMAGES


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "digits"
    write_digits(folder, train=3, test=2)
    monkeypatch.setattr(bptcnn_jobs, "DIGITS", folder)
    return folder


def read(path: Path) -> list[tuple[tuple[int, ...], int, float]]:
    """Shape, pixel and label of each image."""
    source = LmdbSource(str(path))
    samples = [source.read(index) for index in range(len(source))]
    source.close()
    assert all(np.unique(sample.image).size == 1 for sample in samples)
    return [(sample.image.shape, int(sample.image[0, 0, 0]), sample.label) for sample in samples]


def test_images_are_repeated_until_there_are_enough(digits: Path, tmp_path: Path) -> None:
    path = bptcnn_data.write_training(digits, tmp_path, 7)
    assert read(path) == [((1, 32, 32), pixel, pixel) for pixel in (0, 1, 2, 0, 1, 2, 0)]
    assert bptcnn_data.write_training(digits, tmp_path, 7) == path  # it is there


def test_test_images_through_all_windows(digits: Path, tmp_path: Path) -> None:
    assert read(bptcnn_data.write_windows(digits, tmp_path)) == [((1, 28, 28), pixel, pixel) for pixel in (0, 1)
                                                                 for _ in range(25)]  # fmt: skip


def test_the_solver_is_that_of_lenet(digits: Path, tmp_path: Path) -> None:
    work = Work(samples=640, passes=10, batch=64, batches=5, tests=2)
    assert work.iterations == 100
    solver, windows = work.write(tmp_path)
    param = read_plan(solver)
    assert (param.max_iter, param.test_interval, param.test_iter, param.optim.stepvalue) == (100, 5, (4,), (80,))
    assert (param.optim.base_lr, param.optim.momentum, param.optim.gamma) == pytest.approx((0.004, 0.9, 0.1))
    assert param.engine == pb.SolverParameter.CHANNELS_LAST
    assert param.parallel_param.balance_param.num_batches == 5
    graph = build_graph_of(param.train)
    assert graph.edges[0].shape == (64, 1, 28, 28)
    assert sum(count(p.shape) for p in graph.learnable) == 431_080
    (data,) = (layer for layer in graph.nodes if layer.type == "Data")
    assert data.spec.param.data_param.shuffle
    assert "crop_size" not in windows.read_text()


def test_accuracy_is_of_all_images(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of LeNet that say 3, whatever they see: right for one image of two."""
    write_digits(tmp_path / "more", train=1, test=4)
    monkeypatch.setattr(bptcnn_jobs, "DIGITS", tmp_path / "more")
    monkeypatch.setattr(bptcnn_data, "TESTED", 50)
    _, windows = Work(640, 1, 64, 1, 1).write(tmp_path)
    weights = pb.NetParameter(name="LeNet")
    ip2 = weights.layer.add(name="ip2", type="InnerProduct")
    ip2.blobs.add(data=[0.0] * 5000).shape.dim.extend([10, 500])
    ip2.blobs.add(data=[float(label == 3) for label in range(10)]).shape.dim.extend([10])
    (tmp_path / "three.caffemodel").write_bytes(weights.SerializeToString())
    assert bptcnn_data.accuracy(windows, tmp_path / "three.caffemodel", 100) == pytest.approx(0.25)


def test_cores_used() -> None:
    # user nice system idle iowait irq softirq steal guest: 150 of 200 ticks in use, on two cores
    before = "cpu  100 0 50 800 10 0 0 0 0 0\ncpu0 1 0 0\ncpu1 1 0 0\nintr 5\n"
    after = "cpu  200 10 70 840 20 5 5 10 0 0\ncpu0 1 0 0\ncpu1 1 0 0\nintr 5\n"
    assert cores_used(before, after) == pytest.approx(2 * 150 / 200)
    assert cores_used(before, before) == 0.0


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been called; a run leaves its record."""
    called: list[list[str]] = []

    def call(words: list[str], log: Path) -> None:
        called.append(list(words))
        setting = words[-1]
        if "snapshot_prefix" in setting:
            write_csv(FOUR["AGWU+IDPA"][0].record, setting.split('"')[1] + "_run")

    monkeypatch.setattr(bptcnn_jobs, "call", call)
    monkeypatch.setattr(bptcnn_jobs, "busy", lambda seconds: 0.5)
    return called


def test_jobs_are_done_once(commands: list[list[str]], tmp_path: Path) -> None:
    jobs = Jobs(tmp_path / "solver.prototxt", 100, ["server", "a", "b"], tmp_path)
    left = bptcnn.measure(jobs, (1, 2))
    assert list(left) == ["SGWU+UDPA", "SGWU+IDPA", "AGWU+UDPA", "AGWU+IDPA", "one process"]
    assert left["AGWU+IDPA"][2].weights == tmp_path / "AGWU+IDPA_2" / "run_iter_100.caffemodel"
    assert left["AGWU+IDPA"][2].others == 0.5
    assert left["AGWU+IDPA"][2].record.seconds == 10.0
    done = len(commands)
    assert done == 10
    first, testbed = commands[0], str(TESTBED)
    assert first[:6] == [testbed, "run", "--slots", "server:1,a:1,b:1", "--", "bpt"]
    assert first[first.index("--set") + 1] == "parallel_param { exchange: SGWU balance: UNIFORM }"
    assert first[-1] == f'random_seed: 1 snapshot_prefix: "{tmp_path / "SGWU+UDPA_1" / "run"}"'
    assert commands[4][:6] == [testbed, "run", "--on", "a", "--", "python"]
    second = [each[each.index("--set") + 1] for each in commands[5:9]]
    assert "AGWU balance: IDPA" in second[0] and "SGWU balance: UNIFORM" in second[3]  # in the other order
    bptcnn.measure(jobs, (1, 2))
    assert len(commands) == done


def test_fig_13_has_nodes_and_threads_of_the_inner_layer(
    commands: list[list[str]], tmp_path: Path, digits: Path
) -> None:
    """Fewer nodes are the first hosts; those with all hosts are the runs that the comparison has made."""
    solver, _ = Work(640, 1, 64, 1, 1).write(tmp_path)
    jobs = Jobs(solver, 100, ["server", "a", "b"], tmp_path, servers=1)
    jobs.train(axes.BPT_CNN, 1)
    along = list(axes.by_nodes(jobs, [1]))
    assert [(each.value, str(each.way)) for each in along] == [
        (1, "AGWU+IDPA"), (1, "ASGD+UDPA"), (2, "AGWU+IDPA"), (2, "ASGD+UDPA")
    ]  # fmt: skip
    slots = [words[words.index("--slots") + 1] for words in commands]
    assert slots == ["server:2,a:1,b:1", "server:2,a:1", "server:1,a:1", "server:1,a:1,b:1"]
    here = Jobs(solver, 100, ["server", "a", "b"], tmp_path, bed=False)
    along += axes.by_threads(here, [1], axes.numbers_of_threads(3))
    for threads, words in zip((1, 2), commands[4:], strict=True):
        assert words[words.index("-n") + 1] == "2"
        assert f"inner_param {{ engine: TASK_DAG num_threads: {threads} }}" in words[words.index("--set") + 1]
    assert [dict(zip(axes.HEAD, each.row, strict=True))["value"] for each in along] == [1, 1, 2, 2, 1, 2]
    assert along[0].row[-2:] == (1.0, 4.0)  # see FOUR: 0.87 after pass 1, at 4 s
    assert list(axes.table(along))[-1].split()[:4] == ["threads", "2", "AGWU+IDPA", "1"]
    axes.draw(along, tmp_path, "LeNet")
    assert {path.name for path in tmp_path.glob("fig13_*")} == {"fig13_nodes.png", "fig13_threads.png"}


def test_agwu_without_accuracies(commands: list[list[str]], tmp_path: Path, digits: Path) -> None:
    """What shows why few passes learn little; the rival has no such field."""
    solver, _ = Work(640, 1, 64, 1, 1).write(tmp_path)
    jobs = Jobs(solver, 100, ["server", "a"], tmp_path, bed=False, agwu="weigh_by_accuracy: false")
    jobs.train(axes.BPT_CNN, 1)
    jobs.train(RIVAL, 1)
    texts = [words[words.index("--set") + 1] for words in commands]
    assert "agwu_param { weigh_by_accuracy: false }" in texts[0] and "agwu_param" not in texts[1]
    assert not read_solver(solver, [texts[0]]).param.parallel_param.agwu_param.weigh_by_accuracy


def test_runs_with_other_settings_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    bptcnn.keep_settings(parse(bptcnn), path)
    bptcnn.keep_settings(parse(bptcnn, "--seeds", "5"), path)  # more of the same
    with pytest.raises(SystemExit, match="other settings"):
        bptcnn.keep_settings(parse(bptcnn, "--passes", "5"), path)


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with pytest.raises(JobError, match=r"(?s)exit status 3; .*log\.txt ends with\nno such thing"):
        bptcnn_jobs.call([sys.executable, "-c", "import sys; print('no such thing'); sys.exit(3)"], log)


def test_the_rival_and_parameter_servers(commands: list[list[str]], tmp_path: Path, digits: Path) -> None:
    """Parameter servers run on the server's host; ASGD has none, and no momentum: its steps are as long without."""
    solver, _ = Work(640, 1, 64, 1, 1).write(tmp_path)
    jobs = Jobs(solver, 100, ["server", "a", "b"], tmp_path, servers=2)
    jobs.train(Strategy("AGWU", "IDPA"), 1)
    jobs.train(RIVAL, 1)
    with_servers, rival = commands
    assert with_servers[with_servers.index("--slots") + 1] == "server:3,a:1,b:1"
    assert "parallel_param { exchange: AGWU balance: IDPA servers: 2 }" in with_servers
    assert rival[rival.index("--slots") + 1] == "server:1,a:1,b:1"
    assert "parallel_param { exchange: ASGD balance: UNIFORM } momentum: 0 base_lr: 0.04" in rival
    here = Jobs(solver, 100, ["server", "a", "b"], tmp_path / "here", servers=2, bed=False)
    here.train(Strategy("AGWU", "IDPA"), 1)
    assert commands[2][commands[2].index("-n") + 1] == "5"


@pytest.mark.parametrize("net", NETS)
def test_networks_of_table_2_learn_the_digits(net: str, digits: Path, tmp_path: Path) -> None:
    solver, windows = Work(640, 2, 64, 1, 1, net).write(tmp_path)
    graph = build_graph_of(read_plan(str(solver)).train)
    data, loss = graph.nodes[0], graph.nodes[-1]
    assert graph.edges[data.tops[0]].shape == (64, 1, 28, 28)
    assert count(graph.edges[loss.bottoms[0]].shape[1:]) == 10
    assert windows.exists()


def test_what_a_cluster_would_run_can_be_read(tmp_path: Path) -> None:
    """Every solver is there, and its settings are a text."""
    lines = [line for line in bptcnn.on_a_cluster() if not line.startswith("#")]
    assert len(lines) == 2 + 7 + 7 * 4 + 5
    assert all(("TASK_DAG" in line) == ("exchange: ASGD" not in line) for line in lines)  # BPT-CNN has both layers
    for line in lines:
        words = shlex.split(line)
        solver = ROOT / words[words.index("--solver") + 1]
        assert read_solver(solver, [words[words.index("--set") + 1]]).param.max_iter == 234375
