"""The commands in the tables of docs/papers.md: of each row of a paper, how to run what stands there."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from scripts.benches.harness.launch import ROOT, mpirun

PAGE = ROOT / "docs" / "papers.md"
HEAD = ["in the paper", "where it stands", "how to run it", "what differs"]
COMMAND = re.compile(r"`((?:mpirun|bpt|scripts/bench|tools/)[^`]*)`")
SAME = "the same"
BENCH = "scripts/bench"


@dataclass(frozen=True)
class Row:
    """A row of a paper's table.

    Attributes:
        paper: by the name that its section begins with.
        cells: in the columns of HEAD; the last one may be missing.
    """

    paper: str
    cells: list[str]

    @property
    def commands(self) -> list[str]:
        """Those that the row names itself; none where it says "the same" as the row above."""
        return COMMAND.findall(self.cells[2])

    @property
    def is_as_above(self) -> bool:
        """Whether the commands of the row above are its, too."""
        return self.cells[2].startswith(SAME)


@dataclass
class Command:
    """What somebody would type, in the repository.

    Attributes:
        rows: what of which paper it shows.
    """

    text: str
    rows: list[Row] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def of_program(self) -> list[str]:
        """Its words without mpirun and what mpirun takes."""
        words = self.words
        return words[words.index("bpt") :] if words[0] == "mpirun" else words

    @property
    def before(self) -> list[Command]:
        """What is to be run first, in the same folder: the commands before it in its row, if it wants their weights."""
        if "--weights" not in self.words:
            return []
        own = next((row.commands for row in self.rows if self.text in row.commands), [self.text])
        return [Command(text) for text in own[: own.index(self.text)]]

    @property
    def bench(self) -> str:
        """The bench that it starts; "": none."""
        program, *words = self.of_program
        return words[0] if program == BENCH else ""

    @property
    def full(self) -> Command:
        """The same, but not small."""
        text = self.text.replace(" --quick", "") if self.bench else self.text
        return Command(text, self.rows)

    @property
    def writes_to(self) -> bool:
        """Whether it takes a folder for its results."""
        return bool(self.bench) and "--output" in bench_parser(self.bench).format_help()

    def argv(self, folder: Path) -> list[str]:
        """The words that start it by this Python, so that results go to ``folder`` if it asks for one."""
        words = self.words
        if words[0] == "mpirun":
            launcher, bpt = words[1 : words.index("bpt")], self.of_program
            ranks = launcher.index("-n")
            return [*mpirun(int(launcher[ranks + 1])), sys.executable, "-m", *bpt]
        started = [sys.executable, "-m", *words] if words[0] == "bpt" else [sys.executable, *words]
        return [*started, "--output", str(folder)] if self.writes_to else started


def rows(papers: Iterable[str] = ()) -> list[Row]:
    """All rows of tables with a column of commands, in order.

    Args:
        papers: those whose names begin so; by default all.
    """
    found = []
    wanted = tuple(papers) or ("",)
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE):
        title = section.splitlines()[0] if section.strip() else ""
        table = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
        if title.startswith(wanted) and cells and [cell.strip() for cell in cells[0]] == HEAD:
            # A section may have several tables; their heads and lines are no rows.
            found += [Row(title.partition(":")[0], row) for row in cells if row != HEAD and row[0].strip("-")]
    return found


def commands(chosen: Iterable[Row] | None = None) -> list[Command]:
    """Each command once, in order; of a row that says "the same" those of the row above.

    Args:
        chosen: rows; by default all.
    """
    found: dict[str, Command] = {}
    last: list[str] = []
    for row in rows() if chosen is None else chosen:
        last = row.commands or last
        for text in last:
            found.setdefault(text, Command(text)).rows.append(row)
    return list(found.values())


def full_commands(small: Iterable[Command]) -> list[Command]:
    """The same, as they are without --quick; each once."""
    found: dict[str, Command] = {}
    for command in small:
        full = command.full
        found.setdefault(full.text, Command(full.text)).rows.extend(full.rows)
    return list(found.values())


@cache
def bench_parser(name: str) -> argparse.ArgumentParser:
    """Of ``scripts/bench name``."""
    parser = argparse.ArgumentParser()
    runpy.run_path(str(ROOT / "scripts" / "bench"))["BENCHES"][name].add_arguments(parser)
    return parser
