"""The checks in order, and the watchdog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bpt.apps.commands.job import Job
from bpt.apps.doctor import leftovers
from bpt.apps.doctor import library_versions as versions
from bpt.apps.doctor.examine import ExaminationReport, ExaminationRequest, Watchdog, examine
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from tests.apps.doctor.nets import data_net, write_run
from tests.apps.doctor.world import name_hosts, this_rank
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.lmdbs import write_images


def test_a_step_that_is_done_in_time() -> None:
    said: list[str] = []

    def step(world: Communicator) -> None:
        with Watchdog(world, said.append, seconds=10).during("a step"):
            world.Barrier()

    run_ranks(3, step)
    with Watchdog(SerialCommunicator(), said.append, seconds=0).during("nobody waits for another"):
        pass
    assert said == []


def test_a_step_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_all_ranks(comm: ThreadCommunicator, status: int = 1) -> None:
        """As MPI's does; that of threads ends the calling rank, which a timer is not."""
        comm._group.job.fail(SystemExit(status))

    monkeypatch.setattr(ThreadCommunicator, "Abort", end_all_ranks)
    name_hosts(monkeypatch, ("a", "b"))
    said: list[str] = []

    def step(world: Communicator) -> None:
        with Watchdog(world, said.append, seconds=1.0).during("Data"):
            if world.rank == 0:
                world.Barrier()  # where rank 1 never comes

    with pytest.raises(SystemExit, match="1"):
        run_ranks(2, step)
    (line,) = said
    assert line.startswith("PROBLEM Data: not done after 1 s: rank 0 on host a waits for another\n → check whether")


def problems(out: str) -> list[str]:
    """The problems that were printed."""
    return [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("  PROBLEM ")]


@pytest.mark.usefixtures("inputs")
class TestOneProcess:
    """``bpt doctor`` without a launcher."""

    def test_without_a_solver(self, bpt: Bpt) -> None:
        done = bpt("doctor")
        assert done.status == 0
        assert done.err == ""
        assert done.out.startswith("One process, on host ")
        for line in ("MPI", "Versions", "Hosts", "Connections", "Solver and networks"):
            assert line in done.out.splitlines()

    def test_with_a_solver(self, bpt: Bpt) -> None:
        done = bpt("doctor", "--solver=solver.prototxt", "--set", "snapshot_after_train: true")
        assert done.status == 0, done.out
        assert "  ok       LMDB digits_train_lmdb: 200 records\n" in done.out
        assert '  ok       rank 0 can write snapshots under "lenet"' in done.out
        assert problems(done.out) == []

    def test_data_that_are_missing(self, bpt: Bpt, inputs: Path) -> None:
        done = bpt("doctor", "--solver=solver_missing_lmdb.prototxt")
        assert done.status == 1
        (text,) = problems(done.out)
        assert text.endswith(f": no such folder (looked for {inputs}/{text.split(':')[0]})")
        assert done.error == "1 problem found: see PROBLEM above"

    @pytest.mark.parametrize("solver", ["unknown_field", "missing_net_file", "unknown_layer", "no_net", "bad_policy"])
    def test_texts_that_are_wrong(self, bpt: Bpt, solver: str) -> None:
        done = bpt("doctor", f"--solver=solver_{solver}.prototxt")
        assert done.status == 2
        assert problems(done.out) == [done.error]
        assert bpt("train", f"--solver=solver_{solver}.prototxt").error == done.error

    @pytest.mark.parametrize(("words", "error"), [
        (("--set", "max_iter: 3"), "--set goes with --solver"),
        (("--snapshot", "auto"), "--snapshot goes with --solver"),
        (("--solver", "solver.prototxt", "--snapshot=s", "--weights=w"), "give one of them"),
        (("--gpu", "x"), '--gpu x: give "all" or device numbers'),
        (("--solvr", "x"), 'did you mean "--solver"'),
    ])  # fmt: skip
    def test_a_wrong_command_line(self, bpt: Bpt, words: tuple[str, ...], error: str) -> None:
        done = bpt("doctor", *words)
        assert done.status == 2
        assert error in done.error

    def test_what_a_run_starts_from(self, bpt: Bpt) -> None:
        solver = "--solver=solver.prototxt"
        done = bpt("doctor", solver, "--snapshot=auto")
        assert "  ok       snapshot lenet_iter_60.solverstate: " in done.out
        done = bpt("doctor", solver, "--snapshot=auto", "--set", 'snapshot_prefix: "other"')
        assert "no snapshot is under snapshot_prefix yet" in done.out
        done = bpt("doctor", solver, "--snapshot=none.solverstate")
        assert done.status == 1
        assert "none.solverstate: no such file" in problems(done.out)[0]
        done = bpt("doctor", solver, "--weights=init.caffemodel,none.caffemodel")
        assert "  ok       weights init.caffemodel: " in done.out
        assert "none.caffemodel: no such file" in problems(done.out)[0]


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever jobs have left on the machine of the tests."""
    monkeypatch.setattr(leftovers, "find", list)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[ExaminationReport, str]]:
    """Examines one rank on each of ``hosts``, which read the solver by ``read``; the report, and what was printed."""

    def run(hosts: str, read: Callable[[], RunPlan]) -> tuple[ExaminationReport, str]:
        name_hosts(monkeypatch, hosts)
        said: list[str] = []

        def one(world: Communicator) -> ExaminationReport:
            return examine(Job(world, 0, 1), ExaminationRequest(read), said.append, seconds=20)

        reports = run_ranks(len(hosts), one)
        assert {report.problems for report in reports} == {reports[0].problems}
        return reports[0], "\n".join(said)

    return run


def test_ranks_that_agree(report: Callable[..., tuple[ExaminationReport, str]], tmp_path: Path) -> None:
    path = write_run(tmp_path / "a")
    found, said = report("ab", lambda: read_plan(path))
    assert found.problems == 0
    assert said.startswith("2 ranks (the processes that work together, numbered from 0) on hosts a, b\nMPI\n")
    assert "rank 0 (a)  rank 1 (b)" in said
    assert "training net: a batch of 8 samples, 4 for each of 2 ranks" in said
    assert said.splitlines()[-1].startswith("no problems, ")


def test_ranks_of_the_outer_layer(report: Callable[..., tuple[ExaminationReport, str]], tmp_path: Path) -> None:
    data = write_images(tmp_path / "data", [np.zeros((1, 2, 2), np.uint8)] * 8)
    path = write_run(tmp_path / "a", "parallel_param { exchange: SGWU ship_data: true }", data_net(data))
    found, said = report("abb", lambda: read_plan(path, ["max_iter: 6"]))
    assert found.problems == 0
    assert f"ok       LMDB {data}: 8 records, read by rank 0 only" in said
    assert "ok       SGWU, balance UNIFORM; server on rank 0; 2 computing nodes" in said
    assert "6 iterations of 4 samples are 3 passes over 8 samples" in said


def test_ranks_that_read_other_texts(report: Callable[..., tuple[ExaminationReport, str]], tmp_path: Path) -> None:
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", "momentum: 0.5")]
    found, said = report("ab", lambda: read_plan(paths[this_rank()]))
    assert found.wrong is None
    assert found.problems == 1
    assert "PROBLEM  rank 1 on host b: solver differs from rank 0's: " in said
    assert "need the same good texts on all ranks" in said
    found, said = report("ab", lambda: read_plan(paths[0] if this_rank() else tmp_path / "none"))
    assert found.wrong is None
    assert f"PROBLEM  rank 0 on host a: {tmp_path}/none: no such file" in said


def test_ranks_of_another_program(
    report: Callable[..., tuple[ExaminationReport, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "source_digest", lambda: f"{this_rank()}")
    found, said = report("ab", lambda: read_plan(write_run(tmp_path / "a")))
    assert found.problems == 1
    assert [section.title for section in found.sections] == ["MPI", "Versions", "Not checked"]
    assert "install the same bpt on all hosts" in said
