"""``scripts/bench loop``: the sides take turns, and the table says how they compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.proto.sources import read_solver
from scripts.benches import loop
from scripts.benches.harness.turns import Side, in_turn
from tests.support.bench_arguments import parse


def test_every_second_turn_is_in_the_other_order() -> None:
    assert list(in_turn("ab", 3)) == ["a", "b", "b", "a", "a", "b"]


def test_a_side_that_ends_early_is_told_and_ends_the_bench(capfd: pytest.CaptureFixture[str]) -> None:
    side = Side.alone("loop", "eager", "no_such_net", 4, 1, "AUTO")
    with pytest.raises(SystemExit, match="a side has ended"):
        side.train(1)
    side.close()
    assert "no_such_net" in capfd.readouterr().err


@pytest.mark.slow
def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loop.BATCHES, "lenet", 4)
    monkeypatch.setitem(loop.ITERATIONS, "lenet", 3)
    words = "--nets lenet --rounds 1 --threads 1 --engine CONTIGUOUS --plain eager,fused"
    loop.run(parse(loop, *words.split()))
    head, lenet, empty, columns, parts, *_ = capsys.readouterr().out.splitlines()
    assert head.split()[:8] == ["net", "batch", "eager", "ms", "fused", "ms", "bpt", "ms"]
    name, batch, eager, fused, ours, ratio, memory, variant, layout = lenet.split()
    assert (name, batch, layout) == ("lenet", "4", "CONTIGUOUS")
    best = min(float(eager), float(fused))
    assert variant == ("eager," if float(eager) == best else "fused,")
    assert float(ratio) == pytest.approx(float(ours) / best, rel=0.05)
    assert 0.3 < float(memory) < 3
    assert not empty
    assert columns.split()[:3] == ["net", "iteration", "ms"]
    net, iteration, of_roof, *times = parts.split()
    assert (net, float(iteration)) == ("lenet", pytest.approx(float(ours)))
    assert float(of_roof.rstrip("%")) > 0
    assert sum(map(float, times)) == pytest.approx(float(iteration), abs=0.1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCHES": {"lenet": 4, "cifar10_quick": 4}, "STEP": 2, "IMAGES": 9}.items():
        monkeypatch.setattr(loop, name, value)


@pytest.mark.usefixtures("quick")
def test_the_python_face_and_the_command_line_train_the_same_text(tmp_path: Path) -> None:
    solver = loop.write_solver("cifar10_quick", "CONTIGUOUS", tmp_path)
    data = next(layer for layer in read_solver(solver).param.net_param.layer if layer.type == "Data")
    assert data.data_param.batch_size == 4
    assert not data.transform_param.HasField("mean_file")
    for kind in ("command", "python"):
        step, _ = loop.make_side(kind, str(solver), 4, "CONTIGUOUS")
        step()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_table_of_the_python_face(capsys: pytest.CaptureFixture[str]) -> None:
    loop.run(parse(loop, "--python", "--nets", "lenet", "--rounds", "1", "--threads", "1"))
    head, lenet = capsys.readouterr().out.splitlines()
    assert head.endswith("goal: at most 1.05")
    name, batch, command, python, ratio, verdict = lenet.split()
    assert (name, batch) == ("lenet", "4")
    assert verdict == ("reached" if float(ratio) <= loop.GOAL else "missed")
    assert float(ratio) == pytest.approx(float(python) / float(command), rel=0.1)
