"""Every guide is followed: its commands and its Python, in order, from the wheel, in a folder of its own.

Nets are trained for a few iterations only, and what a guide calls by the number of the last one is a snapshot after
fewer. What Python prints is looked at in tests/docs/test_docs.py, where it runs from the working tree.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.guides.bed import Answer, Bed
from tests.support.guides.blocks import GUIDES, RUN, Block, blocks_of, steps_of
from tests.support.mpirun import needs_mpi

QUICK: set[str] = set()
REASONS = {
    "another library", "cluster", "network", "packages of the system", "root", "the whole repository", "your own files",
    "torchrun prints warnings of its own",
}  # fmt: skip
LENET = "snapshots/lenet/lenet_iter_1000"
TRAIN = Block("", 0, "sh", "bpt train --solver prototxt/lenet/solver.prototxt", "")


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return Bed.make(tmp_path_factory.mktemp("bed"))


@needs_mpi
@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, id=guide.name, marks=[] if guide.name in QUICK else pytest.mark.slow)
        for guide in GUIDES
        if steps_of(guide)
    ],
)
def test_guide(guide: Path, bed: Bed, tmp_path: Path) -> None:
    steps, text = steps_of(guide), guide.read_text()
    given = [TRAIN] if LENET in text else []
    answers = bed.follow([*given, *steps], bed.folder(tmp_path / "reader", text))
    last, block = answers[-1], [*given, *steps][len(answers) - 1]
    assert not last.status, f"{guide.name}:{block.line}: status {last.status}\n{last.out[-2000:]}\n{last.err[-4000:]}"
    assert len(answers) == len(given) + len(steps)
    if guide.name == "first_own_images.md":
        pictures_are_told_apart(answers)
    if guide.name == "new.md":
        assert re.search(r'photos/circle/004.jpg\n +[\d.]+  [012] "', answers[-2].out)


def pictures_are_told_apart(answers: list[Answer]) -> None:
    """And ``bpt classify`` says of all of them together what ``bpt test`` says."""
    tested, asked, exported = answers[-3:]
    assert "all within" in exported.out
    accuracy = float(re.findall(r"accuracy = ([\d.]+)", tested.out + tested.err)[-1])
    assert accuracy > 0.9
    assert re.search(r'photos/circle/004.jpg\n +[\d.]+  0 "circle"\n', asked.out)
    last = re.fullmatch(r"accuracy = ([\d.]+) \((\d+) of 60\)", asked.out.splitlines()[-1])
    assert last and float(last[1]) == pytest.approx(accuracy, abs=1e-4)


def test_few_blocks_are_not_run() -> None:
    blocks = [block for guide in GUIDES for block in blocks_of(guide) if block.language in RUN]
    left = [block for block in blocks if block.not_run]
    assert {block.not_run for block in left} <= REASONS
    assert len(left) <= 20 < len(blocks) / 6


def test_commands_are_marked_as_commands() -> None:
    """What is to be typed does not hide among what is to be read."""
    lines = [
        f"{block.guide}:{block.line + number}"
        for guide in GUIDES
        for block in blocks_of(guide)
        if not block.language
        for number, line in enumerate(block.text.splitlines())
        if re.match(r"(\w+=\S+ )*(\S*/)?(bpt|mpirun|srun|sbatch|python3?) [^…]*$", line)
    ]
    assert lines == []
