"""FlightLog: what is written when a run on several ranks fails, and where."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bpt.base.errors import DataError, LostRankError, UsageError
from bpt.config.plan.resolve import read_plan
from bpt.engine.instructions import Instruction
from bpt.system.comm.base import Communicator
from bpt.system.events.flight_recorder import FlightRecorder
from bpt.train.runtime.flight_log import FlightLog
from bpt.train.runtime.rank_status import RankStatusTable
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import Killed, run_ranks
from tests.support.spread_runs import set_up

NAME = "small_flight_recorder_rank_{}.txt"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def solve(error: BaseException, tolerant: bool = False, text: str = "") -> None:
    """Three ranks, of which the second raises ``error`` before it updates in iteration 2."""
    set_up(Path.cwd())

    def run(world: Communicator) -> None:
        with Solver(read_plan("solver.prototxt", [text] if text else []), world=world.Dup()) as solver:

            def fail(iteration: int, instruction: Instruction) -> None:
                if world.rank == 1 and (iteration, instruction.letter) == (2, "U"):
                    raise error

            solver.runtime.passes.executor.before = fail
            solver.solve()

    run_ranks(3, run, tolerant=tolerant)


def test_an_error_of_a_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """Its last instructions are those of the iteration, in the schedule's order, with their messages."""
    with pytest.raises(DataError):
        solve(DataError("a.lmdb: record 7 cannot be read"))
    lines = Path(NAME.format(1)).read_text().splitlines()
    assert lines[0].startswith("Flight recorder of rank 1 (host ")
    assert lines[1] == "Written because: DataError: a.lmdb: record 7 cannot be read"
    told = [line[52:] for line in lines if "in iteration 2" in line]
    order = [
        next(place for place, line in enumerate(told) if line.startswith(word)) for word in ("F0", "B0", "X0", "W")
    ]
    assert order == sorted(order)
    assert not [line for line in told if line.startswith("U")]
    assert any(line.startswith("Allreduce, X0 (data … loss) in iteration 2, ") for line in told)
    assert f"flight recorder: wrote {NAME.format(1)}" in capsys.readouterr().err


def test_a_lost_rank_without_healing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LostRankError):
        solve(Killed(), tolerant=True, text="parallel_param { fault_param { on_loss: STOP } }")
    assert {path.name for path in Path().glob("*flight*")} >= {NAME.format(0)}
    assert not Path(NAME.format(1)).exists()
    assert "Written because: LostRankError: rank 1 (host " in Path(NAME.format(0)).read_text()
    assert f"wrote {NAME.format(0)}" in capsys.readouterr().err


def test_a_loss_that_is_healed_writes_nothing() -> None:
    solve(Killed(), tolerant=True)
    assert not list(Path().glob("*flight*"))


@pytest.mark.parametrize("error", [UsageError("no such flag"), KeyboardInterrupt()])
def test_what_a_user_did_is_not_written(error: BaseException) -> None:
    with pytest.raises(type(error)):
        solve(error)
    assert not Path(NAME.format(1)).exists()


def log_of(prefix: str, flight: FlightRecorder | None = None) -> FlightLog:
    (made,) = run_ranks(1, lambda world: FlightLog(world, prefix, flight or FlightRecorder()))
    return made


def test_before_the_first_iteration_nothing_is_written() -> None:
    log_of("small").failed(DataError("no"))
    assert not list(Path().iterdir())


def test_where_nothing_can_be_written_it_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log_of("no/such/folder/small").write("a test")
    (path,) = tmp_path.glob("bpt_*_flight_recorder_rank_0.txt")
    assert f"wrote {path}" in capsys.readouterr().err


def test_of_those_that_only_follow_the_first_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    flight = FlightRecorder()
    flight.begin_iteration(0, lambda: None)
    log = log_of("small", flight)
    log.standings = RankStatusTable(["rank 0", "rank 1"], [0, 1], 1, [0, 0])
    log.failed(LostRankError("rank 7 is gone", [7]))
    assert not capsys.readouterr().err
    log.standings.leave(0)
    log.failed(LostRankError("rank 7 is gone", [7]))
    assert "flight recorder: " in capsys.readouterr().err
