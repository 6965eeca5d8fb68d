"""The outer layer over MPI: what only real processes show: signals, a worker that is killed, folders that differ."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.train.outer.report import read_csv
from tests.mpi.outer_jobs import NET, SAMPLES, TRAIN, has_learnt, program, running, texts, write
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.paths import GOLDEN

pytestmark = [needs_mpi, pytest.mark.usefixtures("outer_folder")]

SECONDS = 60
C_W = 4 * (784 * 10 + 10)  # bytes of the net's weights


def weights(path: str) -> list[np.ndarray]:
    net = pb.NetParameter.FromString(Path(path).read_bytes())
    return [np.array(blob.data, np.float32) for layer in net.layer for blob in layer.blobs]


def test_runs() -> None:
    """AGWU with IDPA, the same run once more from its log, and a server that computes."""
    done = mpirun(
        3,
        program(
            f"3 {TRAIN}",
            f"""3 {TRAIN} --replay=digits_run/replay.jsonl --set 'snapshot_prefix: "again"'""",
            f"""2 {TRAIN} --set 'snapshot_prefix: "both" parallel_param {{ server: COLOCATED }}'""",
        ),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    log = texts(done.stderr)
    assert log.count("Optimization Done.") == 3
    assert "Parallel: AGWU, balance IDPA; server on rank 0; 2 computing nodes" in log
    assert "Parallel: AGWU, balance IDPA; server on rank 0, which computes as well; 2 computing nodes" in log

    record = read_csv("digits_run")
    assert {row.worker: row.total for row in record.allocation}.keys() == {0, 1}
    assert sum(row.samples for row in record.allocation) == SAMPLES
    # K = 100 · 10 / 200 = 5 passes; Eq. 6 with A = 4: K' = 4 + floor(5 - 2.5) = 6; of the last one nodes make more or
    # less, up to a pass, so that they end together.
    assert all(5 <= node.passes <= 7 for node in record.nodes)
    for node in record.nodes:
        assert (node.bytes_sent, node.bytes_received) == (6 * C_W, 6 * C_W)
    assert has_learnt(record)

    for one, other in zip(weights("digits_iter_100.caffemodel"), weights("again_iter_100.caffemodel"), strict=True):
        np.testing.assert_array_equal(one, other)

    both = read_csv("both_run").nodes
    assert sum(node.samples_allocated for node in both) == SAMPLES
    assert all(5 <= node.passes <= 7 for node in both)
    assert [node.bytes_sent for node in both] == [0, 6 * C_W]


@pytest.mark.slow
def test_a_replay_of_another_run() -> None:
    """All ranks learn so before training, and leave in good order."""
    another = f"3 {TRAIN} --replay=digits_run/replay.jsonl --set 'parallel_param {{ exchange: SGWU }}'"
    done = mpirun(3, program(f"3 {TRAIN}", another), timeout=120)
    assert done.returncode == 2
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "this log is of another run: parallel_param { exchange (AGWU, now SGWU) }; --replay needs" in error
    assert "MPI_ABORT" not in done.stderr


@pytest.mark.slow
def test_signals() -> None:
    """They are served on whichever rank they come, and the job ends when all is written."""
    ranks = ("3", "3", "3+")  # figures take longer than a rank that has failed waits
    lines = [f"""{n} {TRAIN} --set 'max_iter: 100000 snapshot_prefix: "run{run}"'""" for run, n in enumerate(ranks)]
    with running(3, *lines) as run:
        for rank, number in ((0, signal.SIGINT), (2, signal.SIGINT), (1, signal.SIGTERM)):
            run.until("Version 8:")
            run.signal(rank, number)
            run.until("Snapshotting solver state to")
            run.until("Optimization stopped early.")
        assert run.end() == 1
    iteration = re.findall(r"Snapshotting solver state .*_iter_(\d+)", "\n".join(run.log))[-1]
    (error,) = [line for line in run.log if line.startswith("error:")]
    state = f"run2_iter_{iteration}.solverstate"
    told = f"stopped by SIGTERM after {iteration} iterations; wrote {state}; --snapshot {state} resumes from it"
    assert error == f"error: {told}" and Path(state).exists()
    assert not any("MPI_ABORT" in line for line in run.log)
    assert "Report: run2_run" in run.log
    assert len(list(Path().glob("run?_iter_*.solverstate"))) == 3


@pytest.mark.slow
def test_a_worker_that_is_killed() -> None:
    """Its samples go to the other two, and the run to its end."""
    with running(4, f"4 {TRAIN} --set 'max_iter: 500'", options=("--with-ft", "ulfm")) as run:
        run.until("Version 4:")
        run.signal(2, signal.SIGKILL)
        assert run.end() == 0, "\n".join(run.log)
    host = socket.gethostname()
    lost = [line for line in run.log if line.startswith("Lost: ")]
    assert len(lost) == 1
    assert lost[0].startswith(f"Lost: worker 1 (rank 2, host {host}) is gone: it was killed, ")
    (heirs,) = [line for line in run.log if line.startswith("The run continues: ")]
    assert re.fullmatch(r"The run continues: its \d+ samples go to the other workers, with their next passes", heirs)
    assert "Optimization Done." in run.log
    nodes = read_csv("digits_run").nodes
    assert nodes[0].samples_allocated + nodes[2].samples_allocated == SAMPLES
    assert nodes[1].passes < min(nodes[0].passes, nodes[2].passes)
    assert abs(nodes[0].passes - nodes[2].passes) <= 2  # each ends within a pass of the others
    assert nodes[1].lost > 0 and nodes[1].idle_at_end_seconds == 0
    assert any(re.match(r"Report: worker 1 .* lost after [\d.]+ s$", line) for line in run.log)
    assert Path("digits_iter_500.caffemodel").exists()


@pytest.mark.slow
def test_a_worker_that_stands_still() -> None:
    """It is named and ended; the server waited for it at the end, for ever, once."""
    line = f"4 {TRAIN} --set 'max_iter: 500 parallel_param {{ fault_param {{ timeout: 10 }} }}'"
    with running(4, line, options=("--with-ft", "ulfm")) as run:
        run.until("Version 4:")
        run.signal(2, signal.SIGSTOP)
        assert run.end() == 0, "\n".join(run.log)
    host = socket.gethostname()
    for begin in (f"error: rank 2 (host {host}) stands still: ", "Lost: worker 1 (rank 2, ", "Optimization Done."):
        assert any(begin in told for told in run.log), begin


@pytest.mark.slow
def test_data_that_the_server_ships(tmp_path: Path) -> None:
    """The workers are in a folder without data."""
    there = write(tmp_path / "there", data=False)
    argv = program(f"3 {TRAIN} --set 'parallel_param {{ ship_data: true }}'")
    done = mpirun(1, [*argv, ":", "-n", "2", "--wdir", str(there), *argv], timeout=120)
    assert done.returncode == 0, done.stderr
    record = read_csv("digits_run")
    assert sum(node.samples_allocated for node in record.nodes) == SAMPLES
    assert has_learnt(record)
    # Eq. 11; records do not count
    assert sum(node.bytes_sent + node.bytes_received for node in record.nodes) == 2 * C_W * 2 * 6


def fail(there: Path | None = None) -> tuple[subprocess.CompletedProcess[str], str]:
    """Train on 3 ranks, the last one in ``there``, see that they end in time, and return the only error that is told.

    Before that, start-up may take long on a busy machine.
    """
    argv = program(f"3 {TRAIN}")
    last = ["--wdir", str(there)] if there else []
    done = mpirun(2, [*argv, ":", "-n", "1", *last, *argv], timeout=120)
    begun = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("at ")]
    assert time.time() - min(begun) < SECONDS
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return done, error


@pytest.mark.slow
def test_data_that_the_server_misses() -> None:
    """Only it reads these. The workers learn so, and all leave in good order."""
    shutil.rmtree("digits_test_lmdb")
    done, error = fail()
    assert done.returncode == 2
    assert error.startswith("error: net.prototxt:6:16:") and 'layer "digits": digits_test_lmdb: no such folder' in error
    assert "MPI_ABORT" not in done.stderr


@pytest.mark.slow
def test_data_that_one_worker_misses(tmp_path: Path) -> None:
    done, error = fail(write(tmp_path / "there", data=False))
    assert done.returncode
    assert error.startswith(f"error: rank 2 (host {socket.gethostname()}): net.prototxt:4:16:")
    assert "digits_train_lmdb: no such folder" in error


@pytest.mark.slow
def test_a_net_that_differs_on_one_worker(tmp_path: Path) -> None:
    done, error = fail(write(tmp_path / "there", net=NET.replace("num_output: 10", "num_output: 11")))
    assert done.returncode == 2
    assert f"rank 2 on host {socket.gethostname()} differs from rank 0" in error and "network text" in error
    assert "MPI_ABORT" not in done.stderr


@pytest.mark.slow
def test_data_that_differ_on_one_worker(tmp_path: Path) -> None:
    """Its samples would not be those that the others do not have."""
    there = write(tmp_path / "there")
    shutil.rmtree(there / "digits_train_lmdb")
    shutil.copytree(GOLDEN / "lmdb" / "digits_test_lmdb", there / "digits_train_lmdb")
    done, error = fail(there)
    assert done.returncode == 2
    assert f"rank 2 on host {socket.gethostname()} differs from rank 0" in error
    assert "(100 samples, not 200 samples)" in error


def test_samples_migrate_from_a_worker_that_becomes_slower() -> None:
    """Worker 1 takes 0.01 s a sample, and from its third pass on 0.04 s (PacedWorker).

    K = 5 and A = 2: K' = 2 + floor(5 - 1.5) = 5 passes, the last four over 100 samples for each worker: 1 s, then 4 s.
    With migration workers then have 160 and 40 samples: 1.6 s. The server sends the records of what moves.
    """

    def line(prefix: str, migrate: str = "true", options: str = "") -> str:
        settings = f"exchange: SGWU balance_param {{ num_batches: 2 migrate: {migrate} }} ship_data: true"
        return f"""3 {TRAIN}{options} --set 'parallel_param {{ {settings} }} snapshot_prefix: "{prefix}"'"""

    lines = [line("digits"), line("again", options=" --replay=digits_run/replay.jsonl"), line("without", "false")]
    done = mpirun(3, [sys.executable, "-m", "tests.mpi.paced_ranks", *lines], timeout=120)
    assert done.returncode == 0, done.stderr
    seconds = {}
    for name in ("digits", "again", "without"):
        passes = read_csv(f"{name}_run").durations()
        seconds[name] = [max(time for time in times if time is not None) for times in passes][1:]
    assert seconds["without"] == pytest.approx([1, 4, 4, 4])
    assert seconds["digits"] == seconds["again"] == pytest.approx([1, 4, 1.6, 1.6])

    record = read_csv("digits_run")
    assert [(row.giver, row.taker, row.samples) for row in record.migration] == [(1, 0, 60)]
    assert [node.samples_allocated for node in record.nodes] == [160, 40]
    moved = [text for text in texts(done.stderr) if text.startswith("Migration: worker 1 (rank 2, host ")]
    assert len(moved) == 2 and all(" gives 60 samples to worker 0 (rank 1, host " in text for text in moved)
    for one, other in zip(weights("digits_iter_100.caffemodel"), weights("again_iter_100.caffemodel"), strict=True):
        np.testing.assert_array_equal(one, other)
