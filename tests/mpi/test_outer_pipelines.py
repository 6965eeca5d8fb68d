"""Computing nodes of two ranks, over MPI: a server and two pipelines, or two workers whose ranks share the net."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from bpt.train.outer.report import read_csv
from tests.mpi.outer_jobs import NET, SAMPLES, TRAIN, has_learnt, program, running, texts, write
from tests.support.mpirun import mpirun, needs_mpi

pytestmark = [needs_mpi, pytest.mark.usefixtures("outer_folder")]

C_W = 4 * (784 * 20 + 20 + 20 * 10 + 10)  # bytes of the net's weights
DEEPER = NET.replace('bottom: "data" top: "ip"', 'bottom: "hidden" top: "ip"').replace(
    'layer { name: "ip"',
    """layer { name: "hidden" type: "InnerProduct" bottom: "data" top: "hidden"
  inner_product_param { num_output: 20 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "hidden" top: "hidden" }
layer { name: "ip\"""",
)
PIPELINES = "num_stages: 2 pipeline_param { schedule: GPIPE micro_batches: 4 }"


@pytest.mark.slow
def test_two_pipelines(tmp_path: Path) -> None:
    """ASGD, and AGWU; of the ranks only the server has the data."""
    write(Path.cwd(), data=False, net=DEEPER)
    there = write(tmp_path / "there", data=False, net=DEEPER)
    shipped = f"{PIPELINES} ship_data: true"
    asgd = f'momentum: 0 max_iter: 400 snapshot_prefix: "asgd" parallel_param {{ exchange: ASGD {shipped} }}'
    argv = program(f"5 {TRAIN} --set '{asgd}'", f"5 {TRAIN} --set 'parallel_param {{ {shipped} }}'")
    done = mpirun(1, [*argv, ":", "-n", "4", "--wdir", str(there), *argv], timeout=180)
    assert done.returncode == 0, done.stderr
    log = texts(done.stderr)
    assert log.count("Optimization Done.") == 2
    assert "Parallel: ASGD, balance IDPA; server on rank 0; 2 computing nodes, each a pipeline of 2 ranks" in log
    for prefix in ("asgd", "digits"):
        record = read_csv(f"{prefix}_run")
        assert sum(node.samples_allocated for node in record.nodes) == SAMPLES
        assert has_learnt(record)
        assert Path(f"{prefix}_iter_{400 if prefix == 'asgd' else 100}.caffemodel").exists()
    # As of two workers that are alone, see test_outer; which of them makes more passes, their speeds decide.
    assert sum(node.passes for node in record.nodes) == pytest.approx(12, abs=0.5)
    for node in record.nodes:
        assert node.bytes_sent == node.bytes_received and node.bytes_sent % C_W == 0


@pytest.mark.slow
def test_two_workers_of_shards_and_of_replicas(tmp_path: Path) -> None:
    """AGWU, and ASGD with chunks; only the server has the data, and every rank of a worker needs its records."""
    write(Path.cwd(), data=False, net=DEEPER)
    there = write(tmp_path / "there", data=False, net=DEEPER)
    chunks = "agwu_param { ranks: 2 worker_exchange: CGDP } cgdp_param { chunk_size: 1 } ship_data: true"
    asgd = f'momentum: 0 max_iter: 400 snapshot_prefix: "asgd" parallel_param {{ exchange: ASGD {chunks} }}'
    shards = "parallel_param { num_shards: 2 ship_data: true }"
    argv = program(f"5 {TRAIN} --set '{asgd}'", f"5 {TRAIN} --set '{shards}'")
    done = mpirun(1, [*argv, ":", "-n", "4", "--wdir", str(there), *argv], timeout=180)
    assert done.returncode == 0, done.stderr
    log = texts(done.stderr)
    assert log.count("Optimization Done.") == 2
    grid = "server on rank 0; 2 computing nodes, each a grid of 2 ranks = "
    assert f"Parallel: ASGD, balance IDPA; {grid}2 replicas" in log
    assert f"Parallel: AGWU, balance IDPA; {grid}1 replica × 2 shards" in log
    for prefix in ("asgd", "digits"):
        record = read_csv(f"{prefix}_run")
        assert sum(node.samples_allocated for node in record.nodes) == SAMPLES
        assert has_learnt(record)
    assert [(node.bytes_sent, node.bytes_received) for node in record.nodes] == [(6 * C_W, 6 * C_W)] * 2


@pytest.mark.slow
def test_a_rank_of_a_pipeline_that_is_killed() -> None:
    """Its whole pipeline is lost; the other one gets the samples, and the run goes on to its end."""
    write(Path.cwd(), data=False, net=DEEPER)
    line = f"5 {TRAIN} --set 'max_iter: 300 parallel_param {{ {PIPELINES} }}'"
    with running(5, line, options=("--with-ft", "ulfm")) as run:
        run.until("Version 4:")
        run.signal(4, signal.SIGKILL)
        assert run.end() == 0, "\n".join(run.log)
    (lost,) = [line for line in run.log if line.startswith("Lost: ")]
    assert lost.startswith(f"Lost: worker 1 (ranks 3 to 4, host {socket.gethostname()}) is gone: ")
    (heirs,) = [line for line in run.log if line.startswith("The run continues: ")]
    assert re.fullmatch(r"The run continues: its \d+ samples go to the other workers, with their next passes", heirs)
    # Open MPI's own words about the collective that broke off may stand before it, on the same line.
    told = re.findall(r"error: (rank .*)", "\n".join(run.log))
    assert len(told) == 1, "\n".join(run.log)
    assert told[0].startswith(f"rank 3 (host {socket.gethostname()}): rank 4 (host {socket.gethostname()}) is gone")
    assert "Optimization Done." in run.log
    nodes = read_csv("digits_run").nodes
    assert nodes[0].samples_allocated == SAMPLES and nodes[1].passes < nodes[0].passes
    assert Path("digits_iter_300.caffemodel").exists()
