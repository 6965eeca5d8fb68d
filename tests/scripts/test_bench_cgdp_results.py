"""Statistics, table, CSV and figures of ``scripts/bench cgdp``, from times that were made up."""

from __future__ import annotations

import builtins
import csv
import struct
from pathlib import Path

import pytest

from scripts.benches.cgdp import figures, results
from scripts.benches.cgdp.jobs import Turn
from scripts.benches.cgdp.results import ALLREDUCE, ALONE, APART, MODEL, ORIGINAL, SEARCH, Outcome, Search, fixed
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import Tables


def phases(backward: float, exchange: float, broadcast: float = 0.0) -> dict[str, float]:
    return {"broadcast": broadcast, "forward": 0.25, "backward": backward, "exchange": exchange, "update": 0.125}


def outcome(*seconds: float, backward: float = 0.5, exchange: float = 0.0, broadcast: float = 0.0) -> Outcome:
    return Outcome((Turn(seconds, (phases(backward, exchange, broadcast),)),))


def test_statistics() -> None:
    first = Turn((1.0, 2.0, 9.0), (phases(0.5, 0.3, 0.1), phases(0.6, 0.1)))  # the second rank waits least
    second = Turn((3.0, 4.0), (phases(0.4, 0.2), phases(0.9, 0.4)))
    both = Outcome((first, second))
    assert both.seconds == 3.0  # of 1, 2, 3, 4, 9
    assert both.spread == 1.0  # quartiles 2 and 4
    assert both.phase("backward") == pytest.approx(0.5)  # of 0.6 and 0.4
    assert both.exposed == pytest.approx(0.15)  # of 0.1 and 0.2
    assert both.backward == pytest.approx(0.65)  # of 0.7 and 0.6
    assert both.blocks == pytest.approx([40.0, 35.0])  # 12 s for 3, 7 s for 2: scaled to 10
    assert outcome(5.0).spread == 0.0


def test_blocks_are_of_ten_iterations() -> None:
    turn = Turn(tuple([1.0] * 10 + [2.0] * 10 + [7.0] * 3), (phases(0, 0),))
    assert Outcome((turn, turn)).blocks == [10.0, 20.0, 10.0, 20.0]
    assert figures.intervals(turn.seconds) == ([10, 20], [10.0, 20.0])


def test_names_of_sizes() -> None:
    assert [results.size_of(way) for way in (fixed(12), SEARCH, MODEL, ORIGINAL, "7")] == [12, None, None, None, None]
    assert results.best_size({ORIGINAL: outcome(1.0)}) is None
    assert results.best_size({fixed(20): outcome(2.0), fixed(3): outcome(1.5), ALONE: outcome(1.0)}) == 3


def test_cost_of_a_search() -> None:
    """20 iterations of 2.2 s, where 2 s would do: 4 of 2,000 s."""
    assert results.search_cost(Search((2.2,) * 20, ()), 2.0) == pytest.approx(0.002)


OUTCOMES = {
    ALONE: outcome(0.8),
    APART: outcome(0.9, 0.91),  # 0.905
    ORIGINAL: Outcome((Turn((1.2,), (phases(0.5, 0.2, 0.1),)),), peak=3 * 2**20),
    ALLREDUCE: outcome(1.1, exchange=0.15),
    fixed(1): Outcome((Turn((1.0,), (phases(0.55, 0.05),)),), (1, 1, 1), 2**21),
    fixed(2): Outcome((Turn((1.04,), (phases(0.5, 0.1),)),), (2, 1)),
    SEARCH: Outcome((Turn((1.04,), (phases(0.5, 0.1),)),), (2, 1), 0, Search((1.25,) * 30, (1.0,) * 20)),
    MODEL: Outcome((Turn((1.06,), (phases(0.5, 0.1),)),), (3,), 0, Search((1.5,) * 30, (1.0,), (((3,), 9.0),))),
}


# The quartiles of "no exchange" are 0.9025 and 0.9075.
TABLE = """\
way               ms     ±  x OrigDP  x ALLREDUCE  backward  exposed       T     T_O  efficiency  MiB    chunks
one process   800.00  0.00      1.50         1.38    500.00     0.00  500.00              100.0%
no exchange   905.00  2.50      1.33         1.22    500.00     0.00  500.00               88.4%
OrigDP       1200.00  0.00      1.00         0.92    500.00   300.00  800.00  295.00       66.7%    3
ALLREDUCE    1100.00  0.00      1.09         1.00    500.00   150.00  650.00  195.00       72.7%
CGDP 1       1000.00  0.00      1.20         1.10    550.00    50.00  600.00   95.00       80.0%    2    3x1
CGDP 2       1040.00  0.00      1.15         1.06    500.00   100.00  600.00  135.00       76.9%         1x2 1x1
CGDP search  1040.00  0.00      1.15         1.06    500.00   100.00  600.00  135.00       76.9%         1x2 1x1
CGDP model   1060.00  0.00      1.13         1.04    500.00   100.00  600.00  155.00       75.5%         1x3
"""


def test_table() -> None:
    assert [line.rstrip() for line in results.table(OUTCOMES)] == TABLE.splitlines()


def test_a_table_of_what_there_is() -> None:
    """Without an alternative its column is empty, and nothing is made up."""
    lines = list(results.table({fixed(1): outcome(1.0)}))
    assert lines[1].split() == ["CGDP", "1", "1000.00", "0.00", "500.00", "0.00", "500.00"]


def test_verdicts() -> None:
    assert list(results.verdicts(OUTCOMES)) == [
        "best fixed chunk size: 1, of 1, 2",
        "CGDP search: chose chunks 1x2 1x1, +4.0% from the best fixed size (goal: at most +5%, reached)",
        # 30 x 0.25 s of 1,000 x 1 s
        "CGDP search: its 30 iterations cost 0.75% of a run of 1,000 (goal: less than 1%, reached)",
        "CGDP model: chose chunks 1x3, +6.0% from the best fixed size (goal: at most +5%, missed)",
        "CGDP model: its 30 iterations cost 1.50% of a run of 1,000 (goal: less than 1%, missed)",
    ]
    assert list(results.verdicts({SEARCH: OUTCOMES[SEARCH]})) == []


def test_the_sign_of_memory_on_a_cpu() -> None:
    assert results.memory_on_cpu(OUTCOMES).startswith("memory of a rank: -1 MiB with CGDP against OrigDP. On a CPU ")
    assert results.memory_on_cpu({ORIGINAL: OUTCOMES[ORIGINAL]}) == ""


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_csv(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    facts = ("lenet", 2, 28, 16, "CONTIGUOUS")
    for _ in range(2):  # a second net comes behind the first
        tables.add("summary", results.SUMMARY, results.summary_rows(facts, OUTCOMES))
    written = rows(tmp_path / "summary.csv")
    assert written[0] == list(results.SUMMARY)
    assert [row[5] for row in written[1:]] == list(OUTCOMES) * 2
    original = dict(zip(*(written[0], written[3]), strict=True))
    expected = {
        "net": "lenet", "ranks": "2", "size": "28", "batch_per_rank": "16", "engine": "CONTIGUOUS", "way": "OrigDP",
        "turns": "1", "iterations": "1", "seconds": "1.2", "spread": "0.0", "speedup_origdp": "1.0",
        "speedup_allreduce": str(1.1 / 1.2), "forward": "0.25", "backward": "0.5", "exchange": "0.2",
        "broadcast": "0.1", "update": "0.125", "exposed": str(0.1 + 0.2), "T": str(0.1 + 0.5 + 0.2),
        "efficiency": str(0.8 / 1.2), "peak_bytes": "3145728", "chunks": "",
    }  # fmt: skip
    assert original == expected

    tables.add("iterations", results.ITERATIONS, results.iteration_rows("a", {SEARCH: OUTCOMES[SEARCH]}))
    written = rows(tmp_path / "iterations.csv")
    assert written[1] == ["a", SEARCH, "", "search", "0", "1.25"]
    assert written[50:] == [["a", SEARCH, "", "after search", "19", "1.0"], ["a", SEARCH, "0", "turn", "0", "1.04"]]
    tables.add("trials", results.TRIALS, results.trial_rows("a", OUTCOMES))
    assert rows(tmp_path / "trials.csv") == [list(results.TRIALS), ["a", MODEL, "0", "1x3", "9.0"]]


def size_of_png(path: Path) -> tuple[int, int]:
    """Width and height, from the file's head."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.parametrize("draw", [figures.draw_sizes, figures.draw_search], ids=["sizes", "search"])
def test_figures(draw: figures.Draw, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(tmp_path / "all.png", "lenet", OUTCOMES)
    assert size_of_png(tmp_path / "all.png") == (1240, 680)  # 6.2 x 3.4 inches of 200 dots
    assert (tmp_path / "all.png").stat().st_size > 20_000
    draw(tmp_path / "few.png", "lenet", {ORIGINAL: OUTCOMES[ORIGINAL]})  # whatever could be measured
    assert size_of_png(tmp_path / "few.png") == (1240, 680)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *more: object) -> object:
        if name == "matplotlib":
            raise ImportError(name)
        return original(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SystemExit, match=r"pip install 'bpt\[plot\]'"):
        check_matplotlib()
