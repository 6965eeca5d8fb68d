"""``scripts/bench ring``: both sides sum the same, in turn, and the table says how they compare."""

from __future__ import annotations

import argparse

import pytest

from scripts.benches import ring
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.mpirun import needs_mpi
from tests.support.paths import ROOT


def test_sizes_go_from_1_kb_to_64_mb() -> None:
    assert ring.SIZES[0] == 10**3
    assert 64e6 <= ring.SIZES[-1] <= 66e6
    assert all(size % 4 == 0 for size in ring.SIZES)


def test_a_row() -> None:
    line = ring.row(4, 16_000, [1e-3, 2e-3, 4e-3], [2e-3, 3e-3, 2e-3])
    assert line.split() == ["4", "16", "2.000", "2.000", "1.50", "0.50", "-", "2.00"]  # ratios 2, 1.5, 0.5
    assert ring.row(2, 1000, [2e-3], [1e-3]).split()[-4:] == ["0.50", "0.50", "-", "0.50"]


@pytest.mark.parametrize(("exchange", "rival"), [("RING", "ALLREDUCE"), ("TREE", "LIBRARY")])
def test_both_sides_take_turns_and_all_ranks_agree_on_the_times(exchange: str, rival: str) -> None:
    first, *others = run_ranks(3, lambda comm: ring.compare(comm, exchange, 1000, rounds=3, turn=0.0))
    assert {name: len(seconds) for name, seconds in first.items()} == {rival: 3, exchange: 3}
    assert all(second > 0 for seconds in first.values() for second in seconds)
    assert others == [first] * 2


@pytest.mark.slow
@needs_mpi
def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ring.run(argparse.Namespace(exchanges=["RING", "TREE"], ranks="2", sizes="1000,8000", rounds=3, turn=0.001))
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[::3]] == [["ranks", "kB", "ALLREDUCE"], ["ranks", "kB", "LIBRARY"]]
    rows = [*lines[1:3], *lines[4:]]
    assert [row.split()[:2] for row in rows] == [["2", "1"], ["2", "8"]] * 2
    for row in rows:
        ratio = float(row.split()[4])
        assert 0.001 < ratio < 1000
