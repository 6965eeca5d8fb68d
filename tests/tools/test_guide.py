"""``docs/tools.md``: every tool is there, and its commands are right."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from bpt.cli.main import make_parser
from tests.support.guides.blocks import blocks_of
from tests.support.paths import ROOT

GUIDE_FILE = ROOT / "docs" / "tools.md"
GUIDE = GUIDE_FILE.read_text()
BLOCKS = [block.text for block in blocks_of(GUIDE_FILE) if block.language in ("", "sh")]
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if "--help" not in line]


def test_every_tool_is_in_the_table() -> None:
    there = {path.name for path in (ROOT / "tools").glob("*.py")}
    assert set(re.findall(r"^\| `(\w+\.py)` \|", GUIDE, re.MULTILINE)) == there


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[1])
def test_a_command(command: str) -> None:
    program, *words = shlex.split(command.partition(" 2> ")[0])
    if program.endswith("/bpt"):
        make_parser().parse_args(words)
    else:
        assert program == ".venv/bin/python"
        importlib.import_module(words[0].removesuffix(".py").replace("/", ".")).make_parser().parse_args(words[1:])
    for word in words:
        if word.startswith("prototxt/"):
            assert (ROOT / word).exists()
