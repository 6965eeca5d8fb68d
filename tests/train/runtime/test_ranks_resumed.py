"""A run is saved on some ranks and goes on, on others, as if nothing had been; and what if that cannot be."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bpt.base.errors import FileError, UserError, WriteError
from bpt.base.file_digest import file_fact
from bpt.base.signals import SignalActions
from bpt.train.runtime import checkpoint
from tests.support.full_disk import contents, full_disk
from tests.support.spread_runs import Saved, assert_same_lines, train

pytestmark = pytest.mark.usefixtures("folder")

PEERS = "parallel_param { num_shards: 2 }"
MASTERS = "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"
TREE = "parallel_param { exchange: TREE }"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((4, PEERS), (3, "")),
        ((4, PEERS), (1, "")),
        ((4, TREE), (2, MASTERS)),
        ((1, ""), (4, PEERS)),
    ],
)
def test_the_curve_goes_on(first: tuple[int, str], then: tuple[int, str]) -> None:
    """That of one process which was never interrupted; the data go on in the middle of an epoch."""
    straight = train(1)
    end = Saved.read(9)
    train(first[0], "snapshot: 5 max_iter: 7", first[1])  # 5 · 2 · 6 = 60 samples of 22: in epoch 2
    resumed = train(then[0], then[1], resume="small_iter_5.solverstate")
    assert resumed.iterations == [9] * then[0]
    assert "Resuming from small_iter_5.solverstate" in resumed.log
    assert_same_lines(resumed.lines, straight.since(6))
    Saved.read(9).check(end)


def test_resuming_from_the_newest() -> None:
    """Which that is, the first rank finds out for all."""
    train(2, "snapshot: 3 max_iter: 7")
    resumed = train(3, resume="auto")
    assert "Resuming from small_iter_7.solverstate" in resumed.log
    assert resumed.iterations == [9] * 3


def test_the_seed_is_that_of_the_first_rank() -> None:
    seeds: list[int] = []
    train(3, "random_seed: -1 max_iter: 1", each=lambda solver: seeds.append(solver.runtime.seed))
    assert len(seeds) == 3
    assert len(set(seeds)) == 1
    assert Saved.read(1).rest.random_seed == seeds[0]


def test_ranks_must_have_the_same_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads its own, perhaps on another machine."""
    train(2, "max_iter: 2")
    digest = file_fact
    monkeypatch.setattr(
        checkpoint, "file_fact", lambda path: digest(path) + "!" * (threading.current_thread().name == "rank 1")
    )
    with pytest.raises(UserError, match=r"rank 1 on host .* in the snapshot small_iter_2\.solverstate \(.*!, not "):
        train(3, resume="small_iter_2.solverstate")
    train(1, resume="small_iter_2.solverstate")


def test_a_state_that_is_not_there_is_missed_by_all() -> None:
    with pytest.raises(FileError, match=r"nowhere\.solverstate"):
        train(3, resume="nowhere.solverstate")
    with pytest.raises(FileError, match=r"nowhere\.solverstate"):
        train(3, "random_seed: -1", resume="nowhere.solverstate")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds out a file's name by /proc")
@pytest.mark.parametrize("overrides", ["", PEERS, MASTERS])
def test_all_ranks_raise_what_kept_the_first_from_writing(overrides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the replicas that had no part in it; they would wait for ever."""
    full_disk(monkeypatch, "solverstate")
    raised: list[str] = []

    def catch(solver) -> None:  # type: ignore[no-untyped-def]
        write = solver.snapshot

        def snapshot() -> str:
            try:
                return str(write())
            except WriteError as error:
                raised.append(str(error))
                raise

        solver.snapshot = snapshot

    with pytest.raises(WriteError, match="No space left on device"):
        train(4, overrides, each=catch)
    assert len(raised) == 4
    assert set(raised) == {"small_iter_9.solverstate: could not be written: No space left on device"}
    assert not any("solverstate" in name for name in contents())


def test_a_snapshot_in_the_middle_changes_nothing() -> None:
    """Each rank stops trying layouts, sends what it holds, and goes on as it was."""
    expected = train(2, PEERS)
    end = Saved.read(9)
    run = train(2, PEERS, "snapshot: 1", signals=lambda rank: SignalActions())
    assert run.lines == expected.lines
    Saved.read(9).check(end, 0)
