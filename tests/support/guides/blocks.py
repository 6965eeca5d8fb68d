"""The blocks of the guides, each with what a comment above it says.

``sh`` and ``python`` blocks are for the reader to run, unless their comment says ``<!-- not run: REASON -->``; with
``<!-- slow -->`` they run only where a guide is followed from the wheel. ``<!-- file: NAME -->``: to be saved as that.
Other blocks (``prototxt``, or of no language) are for reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("sh", "python")
_BLOCK = re.compile(r"^(?:<!-- (.*?) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        guide: the file's name.
        line: of its first line of text, from 1.
        language: "sh", "python", "prototxt" or "".
        text: what is inside.
        mark: what the comment above it says, or "".
    """

    guide: str
    line: int
    language: str
    text: str
    mark: str

    def marked(self, word: str) -> str:
        """What stands behind ``word: `` in the mark; "": something else does."""
        name, _, rest = self.mark.partition(": ")
        return rest if name == word else ""

    @property
    def file(self) -> str:
        """What the reader saves it as; "": nothing."""
        return self.marked("file")

    @property
    def not_run(self) -> str:
        """Why it is not run; "": it is, or is not meant to be."""
        return self.marked("not run")

    @property
    def is_slow(self) -> bool:
        """Whether it runs only where the whole guide is followed."""
        return self.mark == "slow"


def blocks_of(guide: Path) -> list[Block]:
    """All blocks of a guide, in order."""
    text = guide.read_text()
    return [
        Block(guide.name, text[: found.start(3)].count("\n") + 1, found[2], found[3], found[1] or "")
        for found in _BLOCK.finditer(text)
    ]


def steps_of(guide: Path) -> list[Block]:
    """Those that the reader runs or saves."""
    return [block for block in blocks_of(guide) if block.file or (block.language in RUN and not block.not_run)]
