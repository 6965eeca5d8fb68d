"""``scripts/bench papers``: which commands it reads off the page, and what it tells of those that it runs."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path

import pytest

from scripts.benches.papers import bench, commands
from scripts.benches.papers.bench import FAILED, LEFT_OUT, OK, tried, why_not
from scripts.benches.papers.commands import Command
from tests.support.bench_arguments import parse

PAGE = """\
# Papers

| paper | where |
| --- | --- |
| A | `bpt draw --model not.a/command` |

## One: of which all is told

| in the paper | where it stands | how to run it | what differs |
| --- | --- | --- | --- |
| Fig. 1 | `a.py` | `bpt draw --model a --output a.svg` | |
| Fig. 2 | `b.py` | `scripts/bench cgdp --quick`: `lenet.png` | |
| Fig. 3 | `b.py` | the same: `other.png` | `scripts/bench gpu` is not of this row |
| Eq. 1 | `c.py` | `mpirun -n 3 --oversubscribe bpt time --set 'a: 1'`, `tools/x.py y` |

## Two: a list

| in the paper | here |
| --- | --- |
| Fig. 1 | `bpt time --model x` |

## Three: later

| in the paper | where it stands | how to run it | what differs |
| --- | --- | --- | --- |
| Fig. 1 | `a.py` | `scripts/bench cgdp` | |
| Fig. 2 | `a.py` | `bpt draw --model a --output a.svg` | |
"""


@pytest.fixture(name="page")
def made_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "papers.md"
    path.write_text(PAGE)
    monkeypatch.setattr(commands, "PAGE", path)
    return path


@pytest.mark.usefixtures("page")
def test_each_command_of_the_page_once_and_what_it_shows() -> None:
    found = [(each.text, [(row.paper, row.cells[0]) for row in each.rows]) for each in commands.commands()]
    assert found == [
        ("bpt draw --model a --output a.svg", [("One", "Fig. 1"), ("Three", "Fig. 2")]),
        ("scripts/bench cgdp --quick", [("One", "Fig. 2"), ("One", "Fig. 3")]),
        ("mpirun -n 3 --oversubscribe bpt time --set 'a: 1'", [("One", "Eq. 1")]),
        ("tools/x.py y", [("One", "Eq. 1")]),
        ("scripts/bench cgdp", [("Three", "Fig. 1")]),
    ]
    assert [row.paper for row in commands.rows(["Three"])] == ["Three"] * 2
    assert [row.is_as_above for row in commands.rows(["One"])] == [False, False, True, False]


def test_what_is_run_first() -> None:
    """In the same folder: what trains the weights that a command wants, in its row."""
    row = commands.Row("One", ["Fig. 1", "`a.py`", "`bpt train --solver a`, then `bpt explain --weights w`", ""])
    train, explain = commands.commands([row])
    assert not train.before
    assert [each.text for each in explain.before] == ["bpt train --solver a"]
    assert not Command("bpt explain --weights w").before


@pytest.mark.usefixtures("page")
def test_the_full_run_has_each_bench_once_without_quick() -> None:
    full = commands.full_commands(commands.commands())
    assert [each.text for each in full if each.bench] == ["scripts/bench cgdp"]
    assert [row.paper for row in full[1].rows] == ["One", "One", "Three"] and len(full) == 4


def test_how_they_are_started(tmp_path: Path) -> None:
    def argv(text: str) -> list[str]:
        return Command(text).argv(tmp_path)

    assert argv("bpt time --set 'a: 1'") == [sys.executable, "-m", "bpt", "time", "--set", "a: 1"]
    launcher, *words = argv("mpirun -n 3 --oversubscribe bpt time")
    assert Path(launcher).name == "mpirun" and words[-6:] == ["-n", "3", sys.executable, "-m", "bpt", "time"]
    assert argv("tools/x.py y") == [sys.executable, "tools/x.py", "y"]
    quick = argv("scripts/bench cgdp --quick")
    assert quick == [sys.executable, "scripts/bench", "cgdp", "--quick", "--output", str(tmp_path)]
    assert argv("scripts/bench inner --rounds 3")[1:] == ["scripts/bench", "inner", "--rounds", "3"]  # it prints only


def runs(monkeypatch: pytest.MonkeyPatch, *programs: str) -> list[Command]:
    """Commands that stand for these programs."""
    known = {f"tools/{number}": program for number, program in enumerate(programs)}
    monkeypatch.setattr(Command, "argv", lambda self, folder: [sys.executable, "-c", known[self.text]])
    return [Command(text) for text in known]


WRITES = "open('a.csv', 'w'); open('b.png', 'w'); print(open('prototxt/lenet/solver.prototxt').read()[:1] and 'said')"
FAILS = "import sys; print('first'); sys.exit('error: no such luck')"


def test_what_becomes_of_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, fails, waits = runs(monkeypatch, WRITES, FAILS, "import time; time.sleep(600)")
    done = tried(1, writes, tmp_path, 60)
    assert (done.result, done.why, list(done.files)) == (OK, "", ["a.csv", "b.png"])
    place = tmp_path / bench.name_of(1, writes)
    assert sorted(path.name for path in place.iterdir()) == ["a.csv", "b.png", "log.txt"]
    assert (place / "log.txt").read_text() == "said\n" and done.seconds > 0 and done.busy > 0
    assert tried(2, fails, tmp_path, 60).status == f"{FAILED}: no such luck"
    assert tried(3, waits, tmp_path, 0.2).status == f"{FAILED}: not done after 0.2 s"


def test_an_earlier_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = runs(monkeypatch, WRITES, "pass")
    tried(1, first, tmp_path, 60)
    monkeypatch.setattr(bench, "name_of", lambda number, command: Path("again").name)
    tried(1, first, tmp_path, 60)
    assert not tried(1, second, tmp_path, 60).files


def test_what_needs_root_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    outcome = tried(1, Command("scripts/bench balance --quick"), tmp_path, 60)
    assert (outcome.result, outcome.why) == (LEFT_OUT, "unlike ranks take root")
    assert not any(tmp_path.iterdir())
    assert why_not(Command("scripts/bench bptcnn --seeds 1")) and why_not(Command("scripts/bench hybrid"))
    for text in ("scripts/bench bptcnn --quick", "scripts/bench bptcnn --full", "scripts/bench cgdp", "bpt time"):
        assert not why_not(Command(text)), text


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(("programs", "status"), [((WRITES, "pass"), 0), ((WRITES, FAILS), 1)])
def test_a_run(
    programs: tuple[str, str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    first, second = programs
    monkeypatch.setattr(Command, "argv", lambda self, folder: [sys.executable, "-c", first if self.bench else second])
    monkeypatch.setattr(bench, "DIGITS", tmp_path)
    monkeypatch.setattr(bench, "BRAINS", tmp_path)
    monkeypatch.setattr(bench, "end_by_signals", lambda: None)
    words = f"--quick --only Three --only y --output {shlex.quote(str(tmp_path / 'out'))}"
    try:
        bench.run(parse(bench, *shlex.split(words)))
        ended: object = 0
    except SystemExit as error:
        ended = error.code
    assert ended == status
    said = capsys.readouterr().out
    assert "  1 bpt draw --model a --output a.svg\n" in said and "  5 scripts/bench cgdp\n" in said
    assert f"3 commands: {'1 ok, 2 FAILED' if status else '3 ok'}" in said and "1 csv, 1 png" in said
    assert ("no such luck" in said) == bool(status)
    with (tmp_path / "out" / "papers.csv").open() as file:
        told = list(csv.DictReader(file))
    assert [(row["paper"], row["in the paper"]) for row in told] == [
        ("One", "Fig. 1"), ("Three", "Fig. 2"), ("One", "Eq. 1"), ("Three", "Fig. 1"),
    ]  # fmt: skip
    assert told[-1]["status"] == "ok" and told[-1]["files"] == "a.csv b.png"
    assert (tmp_path / "out" / told[-1]["folder"] / "a.csv").exists()


@pytest.mark.usefixtures("page")
def test_nothing_chosen(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no command of docs/papers.md has nowhere"):
        bench.run(parse(bench, "--only", "nowhere", "--output", str(tmp_path)))
