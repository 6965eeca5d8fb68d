"""``scripts/bench inner`` compares like with like: both engines train the same net on the same samples."""

from __future__ import annotations

import argparse

import pytest

from bpt.engine.compute import LibraryCompute
from scripts.benches import inner
from tests.support.bench_arguments import parse
from tests.support.task_dag_nets import plan_of


def test_the_goals_networks_are_the_default() -> None:
    nets = parse(inner).nets.split(",")
    assert nets == [*(f"bpt_cnn/case{case}" for case in range(1, 8)), "googlenet"]
    assert all(inner.BATCHES[net] > 0 for net in nets)


def test_both_sides_compute_the_same() -> None:
    assert inner.difference("lenet", threads=2, batch=16) < 1e-5
    library, dag = (inner.Trainer("lenet", kind, 2, 16).operator for kind in ("LIBRARY", "TASK_DAG"))
    assert isinstance(library.compute, LibraryCompute)
    assert plan_of(dag).is_parallel


@pytest.mark.slow
def test_a_turn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "TURN", 0.0)
    arguments = argparse.Namespace(nets="lenet", rounds=1, threads=2, batch=16, engine="CONTIGUOUS", check=False)
    inner.run(arguments)
    _, line = capsys.readouterr().out.splitlines()
    name, batch, library, dag, ratio, memory, layouts, *_ = line.split()
    assert (name, batch, layouts) == ("lenet", "16", "CONTIGUOUS,")
    assert float(ratio) == pytest.approx(float(dag) / float(library), abs=0.01)
    assert 0.5 < float(memory) < 2
    assert "critical path" in line
