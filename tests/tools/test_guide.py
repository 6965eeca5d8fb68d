"""``docs/tools.md``: every tool is there, and its commands are right."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from bpt.cli.main import make_parser
from tests.support.paths import ROOT

GUIDE = (ROOT / "docs" / "tools.md").read_text()
BLOCKS = re.findall(r"^```(?:sh)?\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
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
