"""Ranks that torchrun starts: without MPI they do what MPI's do, and sums by torch.distributed are those of MPI."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path

from bpt.train.state import read_state
from tests.mpi.check_jobs import DRIVER, Row, check, judge
from tests.mpi.check_ranks import solver_text
from tests.support.comm_contract import CHECKS
from tests.support.mpirun import needs_mpi
from tests.support.torchrun import end_in_time, ranks_of, started, torchrun

FAILING = ["-m", "tests.mpi.failing_ranks"]
SUMMED: list[Row] = [
    ("lenet", 7, "momentum: 0.9 ", "transport: TORCH_DISTRIBUTED "),
    ("lenet", 7, "", "transport: TORCH_DISTRIBUTED exchange: RING "),
]
EVERYTHING: list[Row] = [
    *SUMMED,
    ("lenet", 7, "", ""),
    ("lenet", 7, "", "exchange: CGDP cgdp_param { chunk_size: 2 } "),
    ("lenet", 7, "", "exchange: TREE balance: STATIC "),
    ("lenet", 8, "", "num_shards: 2 "),
    ("lenet", 8, "", "num_stages: 2 pipeline_param { micro_batches: 2 } "),
]


def errors(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("error:")]


def statuses(stderr: str) -> set[int]:
    """The exit statuses of ranks, as torchrun reports them."""
    return {int(status) for status in re.findall(r"exitcode *: (-?\d+)", stderr)}


def only_torchruns_traceback(stderr: str) -> bool:
    """Its last line names ChildFailedError, whatever a rank has done; see docs/parallel.md."""
    return stderr.count("Traceback (most") == 1 and "ChildFailedError" in stderr


def test_contract() -> None:
    done = torchrun(4, ["-m", "tests.mpi.contract_ranks", "contract"])
    assert (done.returncode, done.stderr) == (0, "")
    passed = [f"passed {each.__name__} {size}" for size in (1, 2, 3, 4) for each in CHECKS]
    assert sorted(done.stdout.splitlines()) == sorted(passed)


def test_a_group_connects_neighbours_only() -> None:
    """A ring has two of them, whatever the number of ranks; each of 5 ranks would else connect to 4 others."""
    done = torchrun(5, ["-m", "tests.mpi.socket_ranks"])
    assert (done.returncode, done.stderr) == (0, "")
    count, words = done.stdout.rstrip("\n").split(" ", 1)
    assert words == "sockets for 3 groups" and 0 < int(count) <= 3 * 2  # one may not have been accepted yet


def test_ranks_of_torchrun_give_the_weights_of_one(data: Path) -> None:
    done = torchrun(2, [str(DRIVER), str(data), json.dumps(EVERYTHING)], timeout=300)
    assert done.returncode == 0, done.stderr
    judge(done.stdout, EVERYTHING)


@needs_mpi
def test_sums_by_torch_distributed_under_mpirun_give_the_weights_of_one(data: Path) -> None:
    check(2, SUMMED, data)


def train(data: Path, more: str = "") -> list[str]:
    solver = data / "solver.prototxt"
    solver.write_text(solver_text("lenet", 8, data))
    return ["-m", "bpt", "train", "--solver", str(solver), "--set", more]


def test_it_trains_without_mpi4py_and_the_first_rank_logs(data: Path) -> None:
    done = torchrun(2, train(data, "max_iter: 2 display: 1"))
    assert done.returncode == 0, done.stderr
    assert "2 ranks = 2 replicas; ALLREDUCE, sums by torch.distributed" in done.stderr
    assert re.findall(r"Iteration (\d) \(", done.stderr) == ["0", "1"]
    assert "Traceback" not in done.stderr
    state = read_state(str(data / "s_iter_2.solverstate"))
    assert state.iter == 2


def test_a_mistake_in_a_solver_is_told_once_and_is_status_2_on_all_ranks(data: Path) -> None:
    done = torchrun(2, train(data, "max_itr: 2"))
    (error,) = errors(done.stderr)
    assert 'no field "max_itr"; did you mean "max_iter"?' in error
    assert statuses(done.stderr) == {2}
    assert only_torchruns_traceback(done.stderr)


def test_a_setting_of_mpi_is_refused(data: Path) -> None:
    done = torchrun(2, train(data, "parallel_param { transport: MPI }"))
    (error,) = errors(done.stderr)
    assert "start them with mpirun, or leave out transport" in error
    assert statuses(done.stderr) == {2}


def test_a_rank_that_fails_names_itself_host_and_reason() -> None:
    done = torchrun(3, [*FAILING, "lost_record", "1"])
    assert errors(done.stderr) == [f"error: rank 1 (host {socket.gethostname()}): a.lmdb: record 7 cannot be read"]
    assert 1 in statuses(done.stderr)
    assert only_torchruns_traceback(done.stderr)


def test_a_rank_that_is_killed_ends_those_that_wait_for_it() -> None:
    done = torchrun(2, [*FAILING, "killed", "1"])
    assert done.returncode
    assert -signal.SIGKILL in statuses(done.stderr)
    assert all("is gone (noticed in " in error for error in errors(done.stderr))
    assert only_torchruns_traceback(done.stderr)


def test_ctrl_c_at_torchrun_saves_and_stops(data: Path) -> None:
    with started(2, train(data, "max_iter: 100000 display: 1")) as process:
        assert process.stderr is not None
        log: list[str] = []
        while "Iteration 2 " not in (line := process.stderr.readline()):
            assert line, log
            log.append(line)
        ranks = ranks_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
    (iterations,) = re.findall(r"Stopped after (\d+) iterations, all of them saved", rest)
    assert read_state(str(data / f"s_iter_{iterations}.solverstate")).iter == int(iterations)
    assert errors(rest) == []
    assert rest.count("Traceback (most") == 1 and "SignalException" in rest  # torchrun's own
    end_in_time(ranks, 60)


def test_a_torchrun_that_is_killed_takes_its_ranks_along() -> None:
    with started(2, [*FAILING, "none_until_the_launcher_is_killed", "0"]) as process:
        assert process.stdout is not None
        ranks = [int(process.stdout.readline().split()[2]) for _ in range(2)]
        os.kill(process.pid, signal.SIGKILL)
        end_in_time(ranks, 60)
