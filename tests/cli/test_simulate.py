"""``bpt simulate`` at the command line."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import Path

import pytest

from bpt.apps.commands.job import Job
from bpt.base.errors import UsageError
from bpt.cli.main import COMMANDS, make_parser
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.paths import GOLDEN, PROTOTXT, ROOT

CLUSTER = "node { name: 'a' count: 2 samples_per_second: 400 noise: 0.1 } node { name: 'b' samples_per_second: 100 }"
SIMULATE = ("simulate", "--solver=solver.prototxt", "--cluster=c.prototxt")
OUTER = "parallel_param { exchange: AGWU balance: IDPA } max_iter: 400"


@pytest.fixture
def cluster(inputs: Path) -> Path:
    (inputs / "c.prototxt").write_text(CLUSTER)
    return inputs


@pytest.mark.usefixtures("cluster")
def test_a_run_is_told_as_a_table(bpt: Bpt) -> None:
    """400 iterations with batches of 20 of 200 digits."""
    outcome = bpt(*SIMULATE, "--set", OUTER)
    assert (outcome.status, outcome.err) == (0, "")
    first, _, head, line, *rest = outcome.out.splitlines()
    assert first.startswith("LeNetTiny: 16,250 parameters (0.065 MB), ")
    assert first.endswith(" MFLOP a sample; 200 samples, K = 40 passes in batches of 20; 3 nodes")
    assert head.startswith("strategy")
    assert line.startswith("AGWU+IDPA ")
    assert any(re.match(r"a +x 2 +400 ", text) for text in rest)
    assert bpt(*SIMULATE, "--set", OUTER).out == outcome.out


def test_strategies_and_files(bpt: Bpt, cluster: Path) -> None:
    pytest.importorskip("matplotlib")
    files = ("--csv=all.csv", "--nodes=nodes.csv", "--png=all.png")
    outcome = bpt(*SIMULATE, "--set=max_iter: 400", "--strategies=all", *files)
    assert outcome.status == 0
    with (cluster / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["strategy"] for row in rows] == ["SGWU+UDPA", "SGWU+IDPA", "AGWU+UDPA", "AGWU+IDPA"]
    assert all(f"{float(row['seconds']):.6g}" in outcome.out for row in rows)
    assert len((cluster / "nodes.csv").read_text().splitlines()) == 1 + 4 * 3
    assert (cluster / "all.png").stat().st_size > 10_000


@pytest.mark.usefixtures("cluster")
def test_without_the_data(bpt: Bpt) -> None:
    net = Path("lenet_train_test.prototxt")
    net.write_text(net.read_text().replace("digits_train_lmdb", "nowhere"))
    missing = bpt(*SIMULATE, "--set", OUTER)
    assert missing.status == 2
    assert "nowhere: no such folder" in missing.error
    outcome = bpt(*SIMULATE, "--set", OUTER, "--samples=200", "--shape=1x28x28")
    assert outcome.status == 0
    assert "; 200 samples, " in outcome.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster=c.prototxt"], "bpt simulate needs --solver: what to train"),
        (["--solver=solver.prototxt"], "bpt simulate needs --cluster FILE: a text with the nodes; "),
        ([*SIMULATE[1:], "--shape=1x28x28"], "--shape replaces the data set, so it needs --samples"),
        ([*SIMULATE[1:], "--shape=1x28x"], '--shape: takes a shape such as 3x224x224, found "1x28x" '),
        ([*SIMULATE[1:], "--samples=0"], '--samples: takes a whole number of at least 1, found "0" '),
        ([*SIMULATE[1:], "--strategies=AGWU"], '--strategies: unknown strategy "AGWU"'),
        ([*SIMULATE[1:]], "solver.prototxt:1:1: parallel_param: exchange: ALLREDUCE (the default) cannot be "),
        (["--solver=solver.prototxt", "--cluster=nope", f"--set={OUTER}"], "nope: no such file"),
        ([*SIMULATE[1:], "--strategies=all", "--png=a.foo"], "--png a.foo: writes files that end in .png or .svg"),
        ([*SIMULATE[1:], "--strategies=all", "--csv=no/a.csv"], 'no/a.csv: cannot be written: there is no folder "no"'),
        (
            [*SIMULATE[1:], "--strategies=all", "--nodes=no/a.csv"],
            'no/a.csv: cannot be written: there is no folder "no"',
        ),
        ([*SIMULATE[1:], "--strategies=all", "--csv=."], ".: cannot be written: it is a folder"),
        ([*SIMULATE[1:], "--strategies=all", "--set=max_iter: 0"], "max_iter is 0, so there is nothing to simulate"),
        ([*SIMULATE[1:], "--strategies=all", "--samples=9", "--shape=3x224"], '--shape 3x224: layer "digits" reads im'),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    outcome = bpt("simulate", *words)
    assert outcome.error.startswith(message)
    assert (outcome.status, outcome.out) == (2, "")


@pytest.mark.usefixtures("cluster")
def test_it_runs_on_one_process() -> None:
    arguments = make_parser().parse_args(SIMULATE)
    with pytest.raises(UsageError, match="leave mpirun out"):
        run_ranks(2, lambda comm: COMMANDS["simulate"].run(arguments, Job(comm, comm.rank, comm.size)))


def test_every_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["simulate", "--help"])
    text = capsys.readouterr().out
    for flag in ("solver", "set", "cluster", "samples", "shape", "strategies", "csv", "nodes", "png", "level", "stage"):
        assert f"  -{flag}, --{flag} " in text


def test_the_help_shows_a_cluster(bpt: Bpt, cluster: Path) -> None:
    [example] = re.findall(r"\n\n((?:  (?:node|server) .*\n)+)", COMMANDS["simulate"].DESCRIPTION)
    (cluster / "c.prototxt").write_text(example)
    assert bpt(*SIMULATE, "--set", OUTER).status == 0


def examples(path: Path) -> list[list[str]]:
    """The words of each ``bpt simulate`` in a guide or a comment, but for those with 10,000 nodes, which take long."""
    text = re.sub(r"^# ?", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    commands = (shlex.split(found) for found in re.findall(r"^ *(bpt simulate .*)$", text, re.MULTILINE))
    return [words[1:] for words in commands if "S" not in words and "ten_thousand" not in " ".join(words)]


@pytest.mark.parametrize(
    "path", [ROOT / "docs" / "simulate.md", *sorted((PROTOTXT / "clusters").iterdir())], ids=lambda path: path.name
)
def test_the_guides_commands_run(path: Path, bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "prototxt").symlink_to(PROTOTXT)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "digits" / "train_lmdb").symlink_to(GOLDEN / "lmdb" / "digits_train_lmdb")
    monkeypatch.chdir(tmp_path)
    for words in examples(path):
        outcome = bpt(*words)
        assert (outcome.status, outcome.err) == (0, "")


def test_there_are_commands_in_the_guide() -> None:
    assert len(examples(ROOT / "docs" / "simulate.md")) == 3


def test_the_guides_table_is_what_its_command_prints(bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """... for the 1,437 digits, which need not be there."""
    (tmp_path / "prototxt").symlink_to(PROTOTXT)
    monkeypatch.chdir(tmp_path)
    guide = ROOT / "docs" / "simulate.md"
    [table] = re.findall(r"^```\n(LeNet: .*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    outcome = bpt(*examples(guide)[0], "--samples=1437", "--shape=1x28x28")
    assert outcome.out.startswith(table)


@pytest.mark.usefixtures("cluster")
def test_what_was_hardly_meant_is_told(bpt: Bpt) -> None:
    told = bpt(*SIMULATE, "--set", OUTER, "--set", "parallel_param { agwu_param { push: 2 local_epochs: 1 } }")
    assert told.err == "warning: parallel_param: agwu_param { push } has no effect with exchange: AGWU\n"
    few = bpt(*SIMULATE, "--strategies=SGWU+UDPA", "--set=max_iter: 400", "--samples=2")
    assert few.err == "warning: there are 3 nodes for 2 samples: some have nothing to train\n"
    assert (told.status, few.status) == (0, 0)


def test_all_nodes_die(bpt: Bpt, cluster: Path) -> None:
    (cluster / "c.prototxt").write_text("node { count: 2 samples_per_second: 400 fails: 1.5 }")
    outcome = bpt(*SIMULATE, "--set", OUTER)
    assert outcome.status == 1
    assert outcome.error.startswith("c.prototxt: AGWU+IDPA: all nodes are dead after 1.5 s: ")
