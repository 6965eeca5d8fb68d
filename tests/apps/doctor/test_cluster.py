"""What --cluster of doctor shows and writes; the measurement is told here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.doctor import cluster_report as described
from bpt.apps.doctor.cluster_report import describe_cluster
from bpt.apps.doctor.findings import Severity
from bpt.cli.main import main
from bpt.parallel.cluster.cluster import Cluster, Node, NodeLink
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.perf.speeds import job_cluster
from bpt.system.device import CPU
from tests.apps.doctor.world import on_hosts, same, texts_of
from tests.support.small_solver import small_solver

NODES = Node("a", 4.0, latency=1e-4, bandwidth=1e8, cores=2), Node("b", 2.0, latency=1e-4, bandwidth=1e8, memory=2**30)


def test_what_is_shown_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Cluster(NODES, links=(NodeLink("a", "b", 5e-4, 1e7),), shared=2e8)
    monkeypatch.setattr(described, "measured_cluster", lambda *_: measured)
    plan, path = small_solver(tmp_path), str(tmp_path / "nodes.prototxt")
    section = same(on_hosts("ab", lambda ranks: describe_cluster(ranks, plan, CPU, path)))
    assert texts_of(section, Severity.OK) == [f"wrote {path}: bpt plan --solver {plan.path} --auto --cluster {path}"]
    between, shared = texts_of(section, Severity.NOTE)
    assert between == "between a and b: 500.0 µs and 10 MB/s"
    assert shared.startswith("pairs of hosts that send at once have 200 MB/s together")
    assert [line.split()[:3] for line in section.table[1:]] == [["a", "1", "4"], ["b", "1", "2"]]
    assert ClusterSource(path).cluster(0, 0) == measured


def test_what_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cluster", "nodes.prototxt"]) == 2
    assert "--cluster goes with --solver" in capsys.readouterr().err
    assert main(["doctor", "--solver", small_solver(tmp_path).path, "--cluster", "no/nodes.prototxt"]) == 2
    assert 'there is no folder "no"' in capsys.readouterr().err


@pytest.mark.slow
def test_from_the_doctor_to_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_cluster, "SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    solver = small_solver(tmp_path).path
    assert main(["doctor", "--solver", solver, "--cluster", "nodes.prototxt"]) == 0
    assert "ok       wrote nodes.prototxt" in capsys.readouterr().out
    assert main(["plan", "--solver", solver, "--dry-run", "--cluster", "nodes.prototxt"]) == 0
