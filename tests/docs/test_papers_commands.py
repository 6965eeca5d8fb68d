"""The commands of docs/papers.md run, small, and print what their rows promise.

``test_papers`` runs them as they stand there, which takes long. Here those of bpt run in one launch, with few
iterations; of benches, those that take seconds. What the others write is looked up in their source.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.benches.harness.launch import ROOT, environment
from scripts.benches.papers.commands import Command, commands, rows
from tests.support.mpirun import mpirun, needs_mpi
from tests.support.paths import GOLDEN

VARIABLES = environment() | {"PYTHONPATH": str(ROOT)}

# Part of a command → what is printed, as regular expressions. All entries that a command has count.
CHECKED = r"All ranks and one process agree: no relative difference is above 1e-05"
PHASES = r"rank +host +broadcast +forward +backward +exchange +update +total +computing"
LAYERS = r"layer +type +forward ms +backward ms +parameters +MFLOP +GFLOP/s"
PLANNED = r"stage +device +layers +partitions +load +ms"
PROMISED: dict[str, list[str]] = {
    "bpt check": [CHECKED],
    "schedule: DELAYED": [r"one process, which applies gradients as late"],
    # MPI-FC: batch 64, 800 inputs and 500 outputs of ip1 for K = 2 slaves: B K n_b and B n_t elements of 4 bytes.
    "--iterations 5 --set 'parallel_param { num_shards: 3 fc_param { scheme: MASTER_SLAVE": [
        PHASES, r"F1 +ip1 +Bcast +1 +409\.600", r"F1 +ip1 +Gatherv +1 +128\.000", r"B1 +ip1 +Reduce +1 +409\.600",
        r"B1 +ip1 +Scatterv +1 +128\.000",
    ],
    # Fig. 6: each of k = 2 sends S / k to the other, of S = B n_b elements.
    "--iterations 5 --set 'parallel_param { num_shards: 2 }": [PHASES, r"F1 +ip1 … relu1 +Allgatherv +1 +204\.800"],
    "exchange: ASGD": [r"ASGD, balance UNIFORM; server on rank 0", r"staleness [\d.]+ on average", r"by Eq\. 11"],
    "exchange: RING pipeline_param { allocator: GABRA": [r"2 replicas × 2 stages", r"rank 0 trains 32 of 64 samples"],
    "bpt plan": [PLANNED, r"transfer +from +to +kB +diff kB", r"predicted +iteration ms +samples/s +bubble +speed-up"],
    "objective: PROFIT": [r"GABRA: generation +profit"],
    "solver_hybrid.prototxt --shape": [r"GABRA: generation +step ms"],
    "capacity: 0.9": [r"of MiB +work +capacity", r"90\.0%", r"40\.0%"],
    "solver_small_hybrid.prototxt --set": [r"each a pipeline of 2 ranks", r"staleness [\d.]+ on average"],
    "bpt draw": [r"\.svg: \d+ layers in \d+ boxes"],
    "bpt train --solver prototxt/resattnet18_3d/solver_small.prototxt": [r"small_iter_9\.caffemodel"],
    "bpt explain": [r"Wrote 0001_cam\.nii\.gz and 0001_cam\.png"],
    "exchange: AGWU": [r"gamma [\d.]+ \* accuracy [\d.]+", r"by Eq\. 11", r"each worker makes [\d.]+ over its own"],
    "exchange: SGWU": [r"accuracy [\d.]+, factor [\d.]+", r"waiting time by Eq\. 8", r"each worker makes [\d.]+"],
    "bpt train --solver prototxt/lenet/solver.prototxt --set 'max_iter: 50 parallel_param { inner_param": [
        r"Optimization Done"
    ],
    "servers: 1": [r"parameter server on rank 1", r"Batch 2: worker 0"],
    "balance: IDPA }": [r"Batch 4: worker \d \(rank \d, host .*\) gets \d+ samples, has \d+"],
    "migrate: true": [r"SGWU, balance IDPA", r"Batch 1: worker"],
    "bpt simulate": [
        r"strategy +time s +computing +waiting +idle +balance +Eq\. 8 s +updates", r"AGWU\+IDPA",
        r"nodes +samples/s +samples +passes",
    ],
    "case1/deploy.prototxt": [LAYERS, r"conv2 +Convolution", r"fc3 +InnerProduct"],
    "-n 3 bpt time --solver prototxt/lenet/solver.prototxt --iterations 5": [PHASES],
    "lenet/train_val.prototxt --iterations 5": [LAYERS, r"loss +SoftmaxWithLoss"],
    "exchange: TREE": [PHASES, r"X0 .*Isend", r"from +to +kB"],
    "--trace cgdp.json": [r"Optimization Done"],
    "--iterations 10 --set 'parallel_param { exchange: CGDP": [
        r"grad-acc", r"layer +parameters +t_bp +D2H +accumulate +H2D \(t_bc\) +t_as +T_BP\^i",
        r"chunks +T predicted +T measured +ratio +T_O predicted +Eq\. 2 +T_O measured", r"OrigDP: T', T'_O",
    ],
    "tools/net_summary.py": [r"fc7 +InnerProduct .*16,781,312", r"total +60,965,224"],
    "scripts/bench ring": [r"ranks +kB +ALLREDUCE ms +RING ms +ratio"],
    "scripts/bench bptcnn --full": [r"mpirun .*bpt train .*exchange: AGWU balance: IDPA"],
}  # fmt: skip
LONG = {"--profile speed.json"}  # measures until it knows; test_papers runs it
QUICK = ("tools/net_summary.py", "scripts/bench ring", "scripts/bench bptcnn --full")  # of the others


def promised(command: Command) -> list[str]:
    return [words for part, all_words in PROMISED.items() if part in command.text for words in all_words]


def of_bpt() -> list[Command]:
    found = [command for command in commands() if command.of_program[0] == "bpt"]
    return [command for command in found if not any(part in command.text for part in LONG)]


def small(command: Command) -> str:
    """Its ranks and words, with fewer iterations: of the outer layer enough for 4 batches of samples."""
    words = command.words
    ranks = words[words.index("-n") + 1] if words[0] == "mpirun" else "1"
    text = shlex.join(command.of_program[1:])
    few = 16 if re.search("AGWU|SGWU|ASGD", text) else 3
    text = re.sub(r"max_iter: (20|50|100)\b", f"max_iter: {few}", text.replace("max_iter: 18", "max_iter: 9"))
    return f"{ranks} {re.sub('--iterations (5|10)', '--iterations 2', text)}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("prototxt", "scripts", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    return tmp_path


def missing(command: Command, printed: str) -> list[str]:
    return [words for words in promised(command) if not re.search(words, printed)]


def test_every_command_of_bpt_is_known_to_print_something() -> None:
    assert [command.text for command in of_bpt() if not promised(command)] == []
    assert len(of_bpt()) > 35
    unused = [part for part in PROMISED if not any(part in command.text for command in commands())]
    assert unused == []


@needs_mpi
def test_commands_of_bpt_print_what_they_promise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brains = [sys.executable, str(ROOT / "scripts" / "make_brains.py"), "--out", "data/brains"]
    subprocess.run([*brains, "--train", "12", "--test", "8"], cwd=folder, check=True, env=VARIABLES)
    (folder / "out").mkdir()
    monkeypatch.chdir(folder)
    lines = [small(command) for command in of_bpt()]
    done = mpirun(4, [sys.executable, "-m", "tests.mpi.paper_ranks", "out", *lines], timeout=580)
    assert done.returncode == 0, done.stderr
    wrong = {}
    for index, (command, line) in enumerate(zip(of_bpt(), lines, strict=True)):
        printed = (folder / "out" / f"{index}.txt").read_text()
        if "status 0" not in printed or missing(command, printed):
            wrong[line] = missing(command, printed), printed[-1500:]
    assert not wrong
    for name in ("updates", "nodes", "tests", "allocation", "summary"):
        assert (folder / f"snapshots/lenet/lenet_run/{name}.csv").exists()
    assert all((folder / name).stat().st_size for name in ("cgdp.json", "lenet.svg", "alexnet.svg", "0001_cam.nii.gz"))


@needs_mpi
@pytest.mark.parametrize("start", QUICK)
def test_quick_programs_print_what_they_promise(start: str, folder: Path) -> None:
    (command,) = [command for command in commands() if command.text.startswith(start)]
    done = subprocess.run(command.argv(folder), cwd=folder, env=VARIABLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert missing(command, done.stdout) == []


def source_of(bench: str) -> str:
    """The text of a bench's modules."""
    benches = ROOT / "scripts" / "benches"
    others = {"resattnet": ["resattnet.py", "speedup.py"], "gpu": ["device"]}
    names = others.get(bench, [f"{bench}.py", bench])
    files: list[Path] = []
    for place in (benches / name for name in names):
        files += place.rglob("*.py") if place.is_dir() else [place] * place.exists()
    assert files, bench
    return "\n".join(file.read_text() for file in files)


def stems(names: Sequence[str]) -> list[str]:
    """Of "lenet_sizes.png" and "…_times.png" what the source must have: "_sizes", "_times"."""
    return [re.sub(r"^(lenet|cifar10_quick|…)(?=_)", "", name.rsplit(".", 1)[0]).rstrip("*_") for name in names]


def test_benches_write_the_files_and_columns_that_rows_promise() -> None:
    last: list[str] = []
    seen = 0
    for row in rows():
        last = row.commands or last
        bench = next((Command(text).bench for text in last if Command(text).bench), "")
        if not bench:
            continue
        cell = re.sub(r"`(?:mpirun|bpt|scripts|tools)[^`]*`", "", row.cells[2])
        source = source_of(bench) + (ROOT / "bpt/train/outer/report/figures.py").read_text() * (bench == "bptcnn")
        promised = stems(re.findall(r"`([\w…*]+\.(?:png|csv))`", cell))
        columns = re.search(r"columns? (.+)", cell)
        if columns:
            promised += re.split(r", | and ", columns[1])
        for word in promised:
            seen += 1
            assert word in source, (word, row)
    assert seen > 15
