"""``bpt plan`` at the command line."""

from __future__ import annotations

import json
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

GUIDE = ROOT / "docs" / "plan.md"
CLUSTER = "node { name: 'a' gflops: 40 } node { name: 'b' gflops: 20 bandwidth: 800 memory: 512 }"
PLAN = ("plan", "--solver=solver.prototxt")


@pytest.fixture
def cluster(inputs: Path) -> Path:
    (inputs / "c.prototxt").write_text(CLUSTER)
    return inputs


@pytest.mark.usefixtures("cluster")
def test_a_plan_is_told_as_tables(bpt: Bpt) -> None:
    outcome = bpt(*PLAN, "--devices=c.prototxt")
    assert (outcome.status, outcome.err) == (0, "")
    first, costs, _, head, one, two, *rest = outcome.out.splitlines()
    assert re.match(r"LeNetTiny on 2 devices: BLOCK, GPIPE, 4 micro-batches; \d+ layers, 16,250 parameters, ", first)
    assert costs == "costs: floating-point operations"
    assert head.startswith("stage  device  layers")
    assert re.match(r"0 +a +digits … ", one)
    assert re.match(r"1 +b .*loss .* 512$", two)
    assert any(re.match(r"this placement +\d", line) for line in rest)
    assert any(line.startswith("Between any two devices: 800 Mbit/s") for line in rest)


@pytest.mark.usefixtures("inputs")
def test_devices_that_are_alike(bpt: Bpt) -> None:
    counted = bpt(*PLAN, "--devices=2").out
    assert "LeNetTiny on 2 devices: " in counted
    assert "device 1" in counted
    assert bpt(*PLAN, "--set=parallel_param { num_stages: 2 }").out == counted


@pytest.mark.usefixtures("cluster")
def test_the_flag_counts_more_than_the_solver(bpt: Bpt) -> None:
    named = 'parallel_param { num_stages: 3 pipeline_param { devices: "nope" } }'
    assert "LeNetTiny on 2 devices: " in bpt(*PLAN, f"--set={named}", "--devices=c.prototxt").out
    outcome = bpt(*PLAN, f"--set={named}", "--devices=4")
    assert "LeNetTiny on 4 devices: " in outcome.out
    assert outcome.err == (
        "warning: --devices 4: 4 stages, in place of num_stages: 3 of the solver; to train like that, "
        "set num_stages: 4\n"
    )
    assert bpt(*PLAN, f"--set={named}", "--devices=3").err == ""


def test_what_training_would_refuse_is_not_planned(inputs: Path, bpt: Bpt) -> None:
    """A blob that is learned has no samples, which stages could divide into micro-batches."""
    train = (inputs / "lenet_train_test.prototxt").read_text()
    (inputs / "lenet_train_test.prototxt").write_text(
        train + 'layer { name: "learned" type: "Parameter" top: "t" parameter_param { shape { dim: 2 } } }'
    )
    assert "learned" in bpt(*PLAN, "--devices=2").error


@pytest.mark.usefixtures("inputs")
def test_settings_without_effect(bpt: Bpt) -> None:
    outcome = bpt(*PLAN, "--devices=2", "--set=parallel_param { pipeline_param { partitions: 4 } }")
    assert outcome.status == 0
    assert outcome.err == "warning: parallel_param: pipeline_param { partitions } has no effect with allocator: BLOCK\n"


@pytest.mark.usefixtures("cluster")
def test_the_solvers_devices_tell_their_number(bpt: Bpt) -> None:
    named = 'parallel_param { pipeline_param { devices: "c.prototxt" } }'
    assert "LeNetTiny on 2 devices: " in bpt(*PLAN, f"--set={named}").out
    outcome = bpt(*PLAN, f"--set={named}", "--set=parallel_param { num_stages: 3 }")
    assert (outcome.status, outcome.out) == (2, "")
    assert "devices: c.prototxt: has 2 nodes, but num_stages is 3" in outcome.error


@pytest.mark.usefixtures("inputs")
def test_gabra(bpt: Bpt) -> None:
    text = "parallel_param { pipeline_param { allocator: GABRA gabra_param { generations: 30 } } }"
    outcome = bpt(*PLAN, "--devices=2", f"--set={text}")
    assert outcome.status == 0
    assert re.search(r"\nthis placement .*\nBLOCK +\d.*\neven split +\d", outcome.out)
    assert re.search(r"\nGABRA: generation +step ms\n +0 +\d", outcome.out)


def test_figure(bpt: Bpt, cluster: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = bpt(*PLAN, "--devices=c.prototxt", "--figure=plan.png")
    assert outcome.status == 0
    assert outcome.out.endswith("\n\nWrote plan.png\n")
    assert (cluster / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_measured_costs(bpt: Bpt, cluster: Path) -> None:
    """Measured alone, and planned by later; or both at once."""
    outcome = bpt(*PLAN, "--measure=costs.json", "--iterations=1", "--set=engine: CONTIGUOUS")
    assert outcome.status == 0
    assert re.match(
        r"costs\.json: \d+ layers of LeNetTiny in batches of 20: forward \S+ ms, backward .*\n$", outcome.out
    )
    assert "] Measuring 1 batch, each in 4 micro-batches: " in outcome.err
    content = json.loads((cluster / "costs.json").read_text())
    layers = {layer["layer"]: layer for layer in content["layers"]}
    assert {"digits", "conv1", "loss"} <= layers.keys()
    assert layers["conv1"]["forward"] > 0 and layers["conv1"]["backward"] > 0
    assert content["forward"] > 0 and content["backward"] > 0 and content["update"] > 0

    named = 'parallel_param { pipeline_param { costs: "costs.json" } }'
    later = bpt(*PLAN, "--devices=c.prototxt", f"--set={named}")
    assert later.out.splitlines()[1] == f"costs: measured on {content['machine']}"
    at_once = bpt(*PLAN, "--devices=2", "--measure=more.json", "--iterations=1", "--set=engine: CONTIGUOUS")
    assert at_once.status == 0
    assert "each counts as the measured machine" in at_once.out
    assert re.match(r"more\.json: .*\n\nLeNetTiny on 2 devices", at_once.out)

    net = cluster / "lenet_train_test.prototxt"
    net.write_text(net.read_text().replace("batch_size: 20", "batch_size: 10", 1))
    other = bpt(*PLAN, "--devices=c.prototxt", f"--set={named}")
    assert other.status == 2
    assert "costs.json: was not measured for this net: it ran in batches of 20, this has batches of 10" in other.error


@pytest.mark.parametrize(
    ("devices", "text", "message"),
    [
        ("2", "allocator: MANUAL", "no layer runs on stage 1 (device 1)"),
        ("40", "", "--devices 40: the net can be cut into 8 stages at most"),
        ("tiny.prototxt", "", "tiny.prototxt: allocator: BLOCK finds no cut that fits"),
    ],
)
def test_what_cannot_be_planned_is_refused_before_anything_is_measured(
    devices: str, text: str, message: str, bpt: Bpt, cluster: Path
) -> None:
    Path("tiny.prototxt").write_text("node { name: 'a' gflops: 1 memory: 0.01 } node { gflops: 1 }")
    named = f"parallel_param {{ pipeline_param {{ {text} }} }}"
    outcome = bpt(*PLAN, f"--devices={devices}", "--measure=costs.json", "--iterations=1", f"--set={named}")
    assert message in outcome.error
    assert (outcome.status, outcome.out) == (2, "")
    assert not (cluster / "costs.json").exists()


@pytest.mark.usefixtures("cluster")
def test_without_the_data(bpt: Bpt) -> None:
    net = Path("lenet_train_test.prototxt")
    net.write_text(net.read_text().replace("digits_train_lmdb", "nowhere"))
    missing = bpt(*PLAN, "--devices=2")
    assert missing.status == 2
    assert "nowhere: no such folder" in missing.error
    assert bpt(*PLAN, "--devices=2", "--shape=1x28x28").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices=2"], "bpt plan needs --solver: what to train"),
        ([PLAN[1]], "bpt plan needs to know the devices: --devices FILE or --devices N, or num_stages in the"),
        ([PLAN[1], "--devices=0"], "--devices 0: there must be at least 1"),
        ([PLAN[1], "--devices=two"], "--devices two: this is neither a number of devices nor a file"),
        (
            [PLAN[1], "--devices=bad.prototxt"],
            "bad.prototxt:1:1: a node has either samples_per_second or gflops; neither",
        ),
        (
            [PLAN[1], "--devices=40"],
            "--devices 40: the net can be cut into 8 stages at most, because data layers stay ",
        ),
        (
            [PLAN[1], "--devices=tiny.prototxt"],
            "tiny.prototxt: allocator: BLOCK finds no cut that fits: device a (stage ",
        ),
        ([PLAN[1], "--devices=2", "--figure=no/plan.svg"], 'no/plan.svg: cannot be written: there is no folder "no"'),
        ([PLAN[1], "--devices=2", "--figure=plan.pdf"], "--figure plan.pdf: writes files that end in .png or .svg"),
        ([PLAN[1], "--devices=2", "--shape=1x"], '--shape: takes a shape such as 3x224x224, found "1x" '),
        ([PLAN[1], "--devices=2", "--iterations=3"], "--iterations goes with --measure"),
        ([PLAN[1], "--devices=2", "--gpu=0"], "--gpu goes with --measure"),
        ([PLAN[1], "--measure=c.json", "--shape=1x28x28"], "--measure trains on the data set, --shape replaces"),
        ([PLAN[1], "--measure=no/c.json"], 'no/c.json: cannot be written: there is no folder "no"'),
        ([PLAN[1], "--devices=2", "--divices=3"], 'unrecognized arguments: --divices=3; did you mean "--devices"?'),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_mistakes(words: list[str], message: str, bpt: Bpt) -> None:
    Path("bad.prototxt").write_text("node { }")
    Path("tiny.prototxt").write_text("node { name: 'a' gflops: 1 memory: 0.01 } node { gflops: 1 }")
    outcome = bpt("plan", *words)
    assert outcome.error.startswith(message)
    assert (outcome.status, outcome.out) == (2, "")


@pytest.mark.usefixtures("cluster")
def test_it_runs_on_one_process() -> None:
    arguments = make_parser().parse_args([*PLAN, "--devices=2"])
    with pytest.raises(UsageError, match="leave mpirun out"):
        run_ranks(2, lambda comm: COMMANDS["plan"].run(arguments, Job(comm, comm.rank, comm.size)))


def test_every_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["plan", "--help"])
    text = capsys.readouterr().out
    for flag in ("solver", "set", "devices", "shape", "figure", "measure", "iterations", "gpu", "level", "stage"):
        assert f"  -{flag}, --{flag} " in text


def test_the_help_shows_a_cluster(bpt: Bpt, cluster: Path) -> None:
    [example] = re.findall(r"\n\n((?:  node .*\n)+)", COMMANDS["plan"].DESCRIPTION)
    (cluster / "c.prototxt").write_text(example)
    assert "LeNetTiny on 2 devices: " in bpt(*PLAN, "--devices=c.prototxt").out


def examples() -> list[list[str]]:
    """The words of each ``bpt plan`` in the guide."""
    text = GUIDE.read_text().replace("\\\n", " ")
    return [shlex.split(found)[1:] for found in re.findall(r"^(bpt plan .*)$", text, re.MULTILINE)]


@pytest.mark.slow
def test_the_guides_commands_run(bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first prints what the guide shows, as far as the batch goes."""
    pytest.importorskip("matplotlib")
    (tmp_path / "prototxt").symlink_to(PROTOTXT)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "digits" / "train_lmdb").symlink_to(GOLDEN / "lmdb" / "digits_train_lmdb")
    monkeypatch.chdir(tmp_path)
    outcomes = [bpt(*words) for words in examples()]
    assert outcomes and not any(outcome.status for outcome in outcomes)
    assert outcomes[0].out.rstrip() in GUIDE.read_text()


@pytest.mark.usefixtures("inputs")
def test_a_plan_that_is_searched_for(bpt: Bpt, inputs: Path) -> None:
    """Text to paste, which trains as it was planned, reasons, runners-up, and what would change the choice."""
    (inputs / "c.prototxt").write_text(
        "node { name: 'a' gflops: 30 bandwidth: 100 latency: 0.0002 } "
        "node { name: 'b' gflops: 10 bandwidth: 100 latency: 0.0002 }"
    )
    outcome = bpt(*PLAN, "--auto", "--cluster=c.prototxt", "--top=2")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith("LeNetTiny on 2 ranks of 2 nodes, from ")
    (text,) = (line for line in lines if line.startswith("parallel_param {") and "balance: DYNAMIC" in line)
    again = bpt(*PLAN, "--dry-run", "--cluster=c.prototxt", f"--set={text}")
    assert (again.status, again.err) == (0, "")
    (seconds,) = re.findall(r"expected to take ([\d.,]+) ms", outcome.out)
    assert f"expected to take {seconds} ms" in again.out
    assert sum(re.match(r"[12]  ", line) is not None for line in lines) == 2
    assert sum(line.startswith("With links ") for line in lines) == 2
    assert re.search(r"^1 +b +[\d.]+ +[\d.]+", again.out, re.MULTILINE)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--auto",), "give a cluster: --cluster FILE, or --cluster N"),
        (("--auto", "--dry-run", "--cluster=2"), "give one of them"),
        (("--cluster=2",), "--cluster goes with --auto or --dry-run"),
        (("--auto", "--devices=2", "--cluster=2"), "--devices goes with one pipeline"),
        (("--auto", "--cluster=0"), "give a cluster"),
        (("--dry-run", "--cluster=3", "--set=parallel_param { num_stages: 2 }"), "3"),
        (("--auto", "--cluster=none.prototxt"), "none.prototxt"),
    ],
)
def test_searches_that_cannot_be(bpt: Bpt, flags: tuple[str, ...], said: str) -> None:
    outcome = bpt(*PLAN, *flags)
    assert outcome.status == 2
    assert said in outcome.err


@pytest.mark.usefixtures("inputs")
def test_the_picture_of_a_search(bpt: Bpt, inputs: Path) -> None:
    pytest.importorskip("matplotlib")
    assert bpt(*PLAN, "--auto", "--cluster=2", f"--figure={inputs / 'p.svg'}").status == 0
    assert "rank 1" in (inputs / "p.svg").read_text()
