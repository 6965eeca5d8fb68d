"""``scripts/bench staleness``: runs whose clock is virtual and whose arithmetic is real, and the table of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from scripts.benches.harness import outer_jobs
from scripts.benches.staleness import bench
from scripts.benches.staleness.bench import Result, named, plan_of, read, spreads_of, table
from scripts.benches.staleness.learning import learn
from scripts.benches.staleness.ways import ALONE, WAYS
from tests.scripts.bptcnn_runs import write_digits


@pytest.fixture
def solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four iterations of LeNet."""
    write_digits(tmp_path / "digits", train=10, test=10)
    monkeypatch.setattr(outer_jobs, "DIGITS", tmp_path / "digits")
    path, _ = outer_jobs.Work(128, 2, 64, 2, 1).write(tmp_path)
    return path


def test_all_ways_are_ones_that_bpt_takes(solver: Path) -> None:
    """ASGD without momentum, with steps as long."""
    for way in WAYS.values():
        plan = plan_of(solver, way, 2)
        is_asgd = way.strategy is not None and way.strategy.exchange == "ASGD"
        assert (plan.optim.momentum, plan.optim.base_lr) == pytest.approx((0, 0.04) if is_asgd else (0.9, 0.004))
        assert plan.is_outer == (way.name != ALONE) and plan.random_seed == 2


def test_a_bench_of_two_ways(
    solver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarter of the speed: with equal shares of 64 samples, twice, the slow node takes 2 · 64 / 0.25 seconds.

    One process takes 256 seconds. The second time all is read from the file.
    """
    monkeypatch.setattr(bench, "call", lambda *words: None)
    monkeypatch.setattr(bench, "IMAGES", 250)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    ways = "AGWU+UDPA,ASGD+UDPA DISCARD"
    words = ["--ways", ways, "--spread", "1:0.25", "--seeds", "1", "--samples", "128", "--passes", "2"]
    arguments = parser.parse_args([*words, "--out", str(tmp_path / "out")])
    bench.run(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-3] for line in lines[2:5]] == ["1.00", "2.00", "2.00"]
    monkeypatch.setattr(bench, "on_virtual_clock", None)
    bench.run(arguments)
    assert capsys.readouterr().out.splitlines() == lines
    results = list(read(tmp_path / "out" / "virtual_128_2.csv"))
    assert [(each.spread, each.way, each.seconds) for each in results] == [
        ("1", ALONE, 256), ("1:0.25", "AGWU+UDPA", 512), ("1:0.25", "ASGD+UDPA DISCARD", 512)
    ]  # fmt: skip


def test_the_same_call_gives_the_same_weights(solver: Path, tmp_path: Path) -> None:
    plan = plan_of(solver, WAYS["AGWU+IDPA TABLE"], 1)
    paths = tmp_path / "one", tmp_path / "other"
    runs = [(learn(plan, (1.0, 0.3), path), path.read_bytes()) for path in paths]
    assert runs[0] == runs[1] and runs[0][0].staleness > 0


def test_table() -> None:
    results = [Result("1", ALONE, seed, 98.0 + seed, 100.0, 0.0, 0) for seed in (1, 2)]
    results += [Result("1:0.5", "AGWU+IDPA", seed, 97.0 + seed, 60.0, seed, 3) for seed in (1, 2)]
    head, _, alone, agwu = table("1:0.5", results)
    assert head == "speeds 1:0.5, 2 seeds"
    assert alone.split()[2:] == ["99.50", "0.50", "1.00", "0.0", "0"]
    assert agwu.split()[1:] == ["98.50", "0.50", "+1.00", "0.60", "1.5", "3"]


def test_spreads() -> None:
    assert [named(spread) for spread in spreads_of("1:1,1:0.5:0.25")] == ["1:1", "1:0.5:0.25"]
    for text in ("", "1:x", "1:0", "2:1"):
        with pytest.raises(argparse.ArgumentTypeError):
            spreads_of(text)
