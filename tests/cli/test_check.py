"""``bpt check``: a table on stdout, status 1 past the tolerance; on ranks that are threads, the first one tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bpt.apps.check import comparison
from bpt.apps.check.comparison import Compared, TensorDifference
from bpt.apps.commands.job import Job
from bpt.base.errors import RunError
from bpt.cli.main import COMMANDS, make_parser
from bpt.config.precision import FLOAT32, FLOAT64, Precision
from bpt.parallel.exchange import Bucket
from bpt.system.comm.base import Communicator
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.small_solver import SOLVER, small_solver


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are threads must not each have all cores."""
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)


@pytest.fixture
def solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return small_solver(tmp_path, text=SOLVER + "random_seed: 1\n").path


def test_one_process_is_equal_to_itself(solver: str, bpt: Bpt, tmp_path: Path) -> None:
    outcome = bpt("check", f"--solver={solver}", "--iterations=2")
    assert outcome.status == 0
    head, *rows = outcome.out.splitlines()
    assert head == "parameter  gradient: absolute  relative  weight: absolute  relative"
    names = ("conv/0", "conv/1", "ip/0", "ip/1")
    assert rows == [f"{name:9}             0.0e+00   0.0e+00           0.0e+00   0.0e+00  ok" for name in names]
    log = [line.partition("] ")[2] for line in outcome.err.splitlines()]
    assert "Now the same on one process" in log
    assert "All ranks and one process agree: no relative difference is above 1e-05" in log
    assert log[-1].startswith("That was one process against itself; mpirun -n 2 bpt check … ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.prototxt", "solver.prototxt"]


@pytest.mark.parametrize(
    ("flags", "iterations", "precision"),
    [
        ([], 10, FLOAT64),
        (["--iterations=3", "--precision=single"], 3, FLOAT32),
        (["-precision", "double"], 10, FLOAT64),
    ],
)
def test_what_is_compared(
    flags: list[str], iterations: int, precision: Precision, solver: str, bpt: Bpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(comparison, "compare", lambda *args: (asked.append(args[3:5]) or [], args[2]))
    assert bpt("check", f"--solver={solver}", *flags).status == 0
    assert asked == [(iterations, precision)]


def verdicts(out: str) -> list[str]:
    """The last word of each row of the table."""
    words = [line.split()[-1] for line in out.splitlines()]
    return [word for word in words if word in ("ok", "excepted", "DIFFERS")]


def line(name: str, relative: float, excepted: str = "") -> Compared:
    return Compared(name, TensorDifference(0.0, 1.0), TensorDifference(relative, 1.0), excepted)


@pytest.mark.parametrize(
    ("found", "tolerance", "error"),
    [
        ([line("a/0", 9e-6)], [], ""),
        ([line("a/0", 2e-5)], [], "differ by more than 1e-05 (relative) in a/0"),
        ([line("a/0", 2e-5)], ["--tolerance=1e-4"], ""),
        ([line("a/0", 2e-5), line("a/1", 1.0, "no gradient")], ["--tolerance=1e-4"], ""),
        ([line("a/0", 2e-5), line("b/0", 0), line("c/0", 3)], ["--tolerance=1e-6"],
         "differ by more than 1e-06 (relative) in a/0, c/0"),
        ([line(f"a/{i}", 1) for i in range(7)], [],
         "differ by more than 1e-05 (relative) in a/0, a/1, a/2, a/3, a/4 and 2 more"),
    ],
)  # fmt: skip
def test_past_the_tolerance(
    found: list[Compared], tolerance: list[str], error: str, solver: str, bpt: Bpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "compare", lambda *args: (found, args[2]))
    outcome = bpt("check", f"--solver={solver}", *tolerance)
    assert outcome.status == (1 if error else 0)
    if error:
        assert outcome.error == f"1 rank and one process {error}"
    assert len(verdicts(outcome.out)) == len(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "bpt check needs --solver: the text file that says what to train and how"),
        (["--solver=s", "--tolerance=0"], '--tolerance: takes a number above 0, found "0" '),
        (["--solver=s", "--tolerance=-1"], '--tolerance: takes a number above 0, found "-1" '),
        (["--solver=s", "--tolerance=nan"], '--tolerance: takes a number above 0, found "nan" '),
        (["--solver=s", "--tolerance=much"], '--tolerance: takes a number above 0, found "much" '),
        (["--solver=s", "--precision=half"], "--precision: invalid choice: 'half' "),
        (["--solver=s", "--iterations=0"], '--iterations: takes a whole number of at least 1, found "0" '),
        (["--solver=s", "--tolerence=1"], "unrecognized arguments: --tolerence=1; did you mean"),
    ],
)
def test_mistakes(arguments: list[str], message: str, bpt: Bpt) -> None:
    outcome = bpt("check", *arguments)
    assert outcome.error.startswith(message)
    assert outcome.status == 2


def check_on(ranks: int, *words: str) -> None:
    arguments = make_parser().parse_args(["check", *words])

    def run(comm: Communicator) -> None:
        COMMANDS["check"].run(arguments, Job(comm, comm.rank, comm.size))

    run_ranks(ranks, run)


def test_ranks_that_agree(solver: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_on(3, f"--solver={solver}", "--set", "clip_gradients: 0.1")
    assert verdicts(capsys.readouterr().out) == ["ok"] * 4  # once


def test_ranks_that_do_not(solver: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks fail alike, so that the job ends with one message."""
    monkeypatch.setattr(Bucket, "unpack_gradients", lambda self: setattr(self, "_sent", []))
    raised: list[str] = []
    run = COMMANDS["check"].run

    def note(*args: object) -> None:
        try:
            run(*args)
        except RunError as error:
            raised.append(str(error))
            raise

    monkeypatch.setattr(COMMANDS["check"], "run", note)
    with pytest.raises(RunError):
        check_on(2, f"--solver={solver}")
    names = "conv/0, conv/1, ip/0, ip/1"
    assert raised == [f"2 ranks and one process differ by more than 1e-05 (relative) in {names}"] * 2
    assert verdicts(capsys.readouterr().out) == ["DIFFERS"] * 4
