"""Snapshots in memory: a run goes on from them as from those on disk, whichever is newer; nothing is left behind."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bpt.base.signals import SignalAction, SignalActions
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from bpt.train.state import in_memory
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.spread_runs import Saved, set_up, train

EVERY_2 = "snapshot_after_train: false parallel_param { fault_param { memory_snapshot: 2 } }"
QUICK = "test_interval: 100 test_initialization: false display: 0"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place in memory."""
    (tmp_path / "run").mkdir()
    (tmp_path / "memory").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setattr(in_memory, "place_in_memory", lambda: tmp_path / "memory")
    set_up(tmp_path / "run")
    return tmp_path / "memory"


class StopAt(SignalActions):
    """As if a signal stopped the run after so many iterations."""

    def __init__(self, iteration: int) -> None:
        super().__init__()
        self._left = iteration

    def take(self) -> SignalAction:
        self._left -= 1
        return SignalAction.NONE if self._left else SignalAction.STOP


def broken_off(iterations: int, *overrides: str) -> None:
    """A run of one process that leaves what is in memory then."""
    train(1, *overrides, signals=lambda rank: StopAt(iterations))


def states(memory: Path) -> list[str]:
    return sorted(path.name for path in memory.glob("*/*.solverstate"))


@pytest.mark.parametrize("hosts", [["a", "a"], ["a", "b"]])
def test_a_run_goes_on_from_memory(hosts: list[str], memory: Path) -> None:
    """Other hosts get the files from the first one, and do not keep them.

    Both hosts see one memory here, as containers may: the second one's removing took the first one's snapshot once.
    """
    train(1, QUICK)
    expected = Saved.read(9)
    for path in Path().glob("small_iter_*"):
        path.unlink()
    broken_off(6, EVERY_2, QUICK)
    assert states(memory) == ["snapshot_iter_6.solverstate"]

    def run(world: Communicator) -> int:
        with Solver(read_plan("solver.prototxt", [QUICK]), TrainOptions(resume="auto"), world=world) as solver:
            first = solver.iter
            solver.solve()
            return first

    assert run_ranks(3, run, hosts=[*hosts, hosts[1]]) == [6, 6, 6]
    Saved.read(9).check(expected)
    assert states(memory) == ["snapshot_iter_6.solverstate"]


def test_the_newer_one_counts_and_a_damaged_one_does_not(memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken_off(5, EVERY_2, QUICK, "snapshot: 3")  # on disk after 3, in memory after 4
    assert states(memory) == ["snapshot_iter_4.solverstate"]
    assert train(1, QUICK, "max_iter: 4", resume="auto").iterations == [4]  # nothing to train
    [weights] = memory.glob("*/*.caffemodel")
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with caplog.at_level(logging.INFO, "bpt"):
        train(1, QUICK, EVERY_2, "max_iter: 5", resume="auto")
    assert "Skipping snapshot" in caplog.text and "Resuming from small_iter_3.solverstate" in caplog.text
    assert not states(memory)  # the run has come to its end


def test_without_room_the_run_goes_on(memory: Path, caplog: pytest.LogCaptureFixture) -> None:
    prefix = in_memory.prefix_in_memory("small")
    assert prefix
    Path(prefix).parent.mkdir(mode=0o755)  # others may write there
    with caplog.at_level(logging.WARNING, "bpt"):
        train(1, EVERY_2, QUICK)
    [told] = [message for message in caplog.messages if message.startswith("memory_snapshot")]
    assert told.endswith("is not a folder of this user alone; the run continues without snapshots in memory")
