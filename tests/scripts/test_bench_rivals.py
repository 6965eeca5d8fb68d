"""``scripts/bench hybrid --rivals``: what each rival is, arithmetic, and that PyTorch's computes the same."""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.train.outer.report import RunRecord, write_csv
from bpt.train.outer.report import record as record_rows
from scripts.benches.harness import asynchronous
from scripts.benches.harness.tables import Tables
from scripts.benches.hybrid import bench, rival_figures, rivals
from scripts.benches.hybrid.plain_ranks import Volumes, classifier
from scripts.benches.hybrid.rival_points import segments
from scripts.benches.hybrid.rival_results import CURVES, HEAD, Trained, curves, rows, step_of, table
from scripts.benches.hybrid.rival_ways import NAMES, Rival, quick_rivals, rivals_of
from scripts.make_brains import main as make_brains
from tests.support.bench_arguments import parse
from tests.support.net_cases import graph_in, read_net, with_inputs


def test_pytorch_computes_the_same() -> None:
    """Scores of the small net, with gains that are not 0, in training."""
    shapes = {"data": (2, 1, 32, 32, 32), "label": (2,)}
    text = with_inputs(read_net("resattnet18_3d/train_val_small.prototxt"), pb.TRAIN, shapes)
    net = Net(graph_in(text, pb.TRAIN))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in net.values_by_name().values():
            if value.requires_grad and value.dim() < 2:
                value.copy_(0.5 + 0.1 * torch.randn(value.shape, generator=generator))
    data, label = torch.randn(shapes["data"], generator=generator), torch.tensor([0, 1])
    loss = net(data, label.float())
    ours = loss if isinstance(loss, torch.Tensor) else loss[0]
    scores = classifier(net, text)(data)
    torch.testing.assert_close(torch.nn.functional.cross_entropy(scores, label), ours, rtol=1e-4, atol=1e-5)


def test_volumes_are_read_mirrored_and_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = ["make_brains.py", "--out", str(tmp_path), "--size", "8", "--train", "2", "--test", "2"]
    monkeypatch.setattr("sys.argv", make)
    make_brains()
    layer = pb.LayerParameter()
    param = layer.volume_data_param
    param.source, param.batch_size, param.intensity = str(tmp_path / "train.txt"), 2, param.Z_SCORE
    param.shape.append(8)
    plain = Volumes(layer)
    assert len(plain) == 2
    assert plain[0][0].shape == (1, 8, 8, 8)
    assert torch.equal(plain[1][0], plain.volumes[1])
    assert sorted(plain.labels) == [0, 1]
    param.mirror = True
    torch.manual_seed(0)
    mirrored = Volumes(layer)
    seen = {tuple(mirrored[0][0].flatten().tolist()) for _ in range(20)}
    assert seen == {tuple(v.flatten().tolist()) for v in (plain.volumes[0], plain.volumes[0].flip(1))}
    param.mirror, param.shift = False, 1
    moved = Volumes(layer)
    inner = plain.volumes[0][:, 2:6, 2:6, 2:6]
    for _ in range(5):
        volume = moved[0][0]
        places = [volume[:, d : d + 4, h : h + 4, w : w + 4] for d in (1, 2, 3) for h in (1, 2, 3) for w in (1, 2, 3)]
        assert any(torch.equal(place, inner) for place in places)


@pytest.mark.parametrize(
    ("rival", "stages", "exchange", "schedule"),
    [
        (Rival("ONE", 1), 1, "RING", "GPIPE"),
        (Rival("DP", 2), 1, "TREE", "GPIPE"),
        (Rival("DDG", 2), 2, "RING", "DELAYED"),
        (Rival("FDG", 4), 4, "RING", "DELAYED"),
        (Rival("HYBRID", 4), 2, "RING", "DELAYED"),
        (Rival("ASGD", 2), 1, "ASGD", "GPIPE"),
        (Rival("HYBRID_ASGD", 4), 2, "ASGD", "DELAYED"),
    ],
)
def test_what_each_is(rival: Rival, stages: int, exchange: str, schedule: str, tmp_path: Path) -> None:
    path = rivals.write_solver(Path("elsewhere"), 30, tmp_path)
    plan = read_plan(path, [rival.fields])
    assert (plan.max_iter, plan.optim.stepvalue) == (30, (20, 26))
    parallel = plan.parallel_param
    assert parallel.num_stages == stages
    assert pb.ParallelParameter.Exchange.Name(parallel.exchange) == exchange
    assert stages == 1 or pb.PipelineParameter.Schedule.Name(parallel.pipeline_param.schedule) == schedule
    assert 'source: "elsewhere/train.txt"' in (tmp_path / "net.prototxt").read_text()


def test_who_runs() -> None:
    assert rivals_of(["DP", "ONE"], [1, 2, 4]) == [Rival("ONE", 1), Rival("DP", 2), Rival("DP", 4)]
    assert "no 4 equal parts" in Rival("DDP", 4).why_not
    assert "3 ranks are no pipelines of 2" in Rival("HYBRID", 3).why_not
    assert [name for name in NAMES[1:] if Rival(name, 2).why_not] == ["HYBRID_ASGD"]
    assert not any(rival.why_not for rival in quick_rivals(NAMES))
    assert {"HYBRID", "HYBRID_ASGD"} == {rival.name for rival in quick_rivals(NAMES) if rival.ranks == 4}
    assert {"ONE", "DP", "DDP", "ASGD", "DDG", "FDG", "HYBRID"} == {
        rival.name for rival in quick_rivals(NAMES) if rival.ranks < 4
    }


def test_asynchronous_ones_are_trained_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their points are the tests of the run's record, without the one before training."""
    called: list[list[str]] = []

    def call(words: list[str], ranks: int, threads: int, timeout: float) -> str:
        called.append([str(ranks), *words])
        tests = [record_rows.TestRow(second, 5 * second, 1.0, 1, 0, 0.5, 0.75, math.nan) for second in (0, 1, 2)]
        write_csv(RunRecord(seconds=2.0, tests=tests), words[-1].split('"')[1] + "_run")
        return ""

    monkeypatch.setattr(asynchronous, "call", call)
    points = rivals.train(Rival("HYBRID_ASGD", 4), {"solver": "net", "set": ["random_seed: 1"], "every": 5}, tmp_path)
    assert points == [(5, 1, 0.5, 0.75), (10, 2, 0.5, 0.75)]
    [words] = called
    assert words[0] == "4" and "test_interval: 5" in words


def test_times() -> None:
    """The first of three parts of 4, 4 and 2 iterations does not count: 6 iterations in 3 s."""
    assert segments(10, 4) == [(0, 4), (4, 8), (8, 10)]
    points = [(4, 9.0, 1.0, 0.5), (8, 11.0, 0.5, 0.75), (10, 12.0, 0.25, 1.0)]
    assert step_of(points) == 0.5
    assert step_of(points[:1]) == 2.25
    one = Trained(Rival("ONE", 1), points, [1.5, 0.5, 1.0])
    two = Trained(Rival("FDG", 2), points, [0.5])
    assert [row[3:] for row in rows([one, two])] == [(1.0, 1.0, 10.0, 0.25, 1.0), (0.5, 2.0, 5.0, 0.25, 1.0)]
    assert next(curves([two])) == ("FDG", 2, 4, 9.0, 1.0, 0.5)
    assert list(table([one, two]))[2].split() == ["FDG", "2", "500.0", "2.00", "5.0", "0.2500", "100.0%"]


def test_what_is_left_behind(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rng = random.Random(0)
    found = [
        Trained(Rival(name, ranks), [(5, 1.0, rng.random(), 0.5), (10, 2.0, rng.random(), 0.75)], [0.2 / ranks])
        for name, ranks in (("ONE", 1), ("DDP", 2), ("HYBRID", 2), ("HYBRID", 4))
    ]
    tables = Tables(tmp_path)
    tables.add("rivals", HEAD, rows(found))
    tables.add("rival_curves", CURVES, curves(found))
    with (tmp_path / "rivals.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["speedup"]) for row in read] == pytest.approx([1, 2, 2, 4])
    rival_figures.draw(tmp_path / "rivals.png", found)
    assert (tmp_path / "rivals.png").read_bytes()[1:4] == b"PNG"


def test_arguments() -> None:
    arguments = parse(bench, "--rivals", "--ways", "ONE,FDG", "--ranks", "4,2")
    assert (arguments.ways, arguments.ranks, arguments.quick) == (["ONE", "FDG"], [2, 4], False)
    with pytest.raises(SystemExit):
        parse(bench, "--ways", "GPIPE")
