"""What stands beside training in the one program: help, completion, summaries, examples."""

from __future__ import annotations

import argparse
import configparser
import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bpt.apps.commands.examples import copy_example, examples
from bpt.cli.main import COMMANDS, main, make_parser
from tests.support.commands import Bpt
from tests.support.paths import ROOT

CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")
EXTRAS = CONFIG["options.extras_require"]


def test_help_explains_a_command_as_its_flag_does(bpt: Bpt, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    explained = capsys.readouterr().out
    assert bpt("help", "train").out == explained
    outcome = bpt("help", "trian")
    assert (outcome.status, outcome.err) == (2, 'error: unknown command "trian"; did you mean "train"?\n')


@pytest.mark.parametrize(("line", "completed"), [(["bpt", "tr"], "train"), (["bpt", "train", "--sna"], "--snapshot")])
def test_bash_completes_commands_and_flags(bpt: Bpt, line: list[str], completed: str) -> None:
    words = " ".join(f"'{word}'" for word in line)
    typed = f"COMP_WORDS=({words}) COMP_CWORD={len(line) - 1}"
    script = f"{bpt('completion', 'bash').out}\n{typed}\n_bpt\necho ${{COMPREPLY[@]}}"
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == f"{completed}\n"


def test_other_shells_know_every_command(bpt: Bpt) -> None:
    fish = bpt("completion", "fish").out
    assert all(f"-a {name} " in fish for name in COMMANDS)
    assert "bashcompinit" in bpt("completion", "zsh").out


def test_a_summary_is_that_of_the_tool(bpt: Bpt) -> None:
    told = bpt("summary", "--model", str(ROOT / "prototxt/lenet/deploy.prototxt"), "--csv").out
    assert "431080" in told  # LeNet's parameters: 520 + 25050 + 400500 + 5010


def test_an_example_is_copied_with_what_makes_its_data(
    bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prototxt" / "lenet").mkdir(parents=True)
    (tmp_path / "prototxt" / "lenet" / "solver.prototxt").write_text("mine")
    told = bpt("example", "lenet").out
    assert (tmp_path / "prototxt" / "lenet" / "solver.prototxt").read_text() == "mine"
    for name in ("prototxt/lenet/train_val.prototxt", "scripts/make_digits.py"):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    assert "solver.prototxt exists already; it was not changed" in told
    typed = (
        "pip install 'bpt[demo]'",
        "python scripts/make_digits.py",
        "bpt train --solver prototxt/lenet/solver.prototxt",
    )
    assert told.endswith("Next:\n" + "".join(f"  {line}\n" for line in typed))
    told = bpt("example", "ssd_shapes").out  # whose script imports another one
    assert "  python scripts/make_boxes.py data/boxes\n" in told
    words = [sys.executable, "scripts/make_boxes.py", "data/boxes", "--train", "1", "--test", "1"]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.stdout == "data/boxes/train_lmdb: 1 pictures\ndata/boxes/test_lmdb: 1 pictures\n", done.stderr
    assert 'there is no example "lennet"; did you mean "lenet"?' in bpt("example", "lennet").err


def test_the_list_of_examples_has_whole_sentences(bpt: Bpt) -> None:
    *listed, last = bpt("example").out.splitlines()
    assert [line.split()[0] for line in listed] == examples()
    assert all(line.endswith(".") for line in listed)
    assert last.startswith("bpt example lenet ")


@pytest.mark.parametrize("name", examples())
def test_what_an_example_says_comes_next_is_accepted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """make_brains.py once refused the folder that it was told to write to."""
    monkeypatch.chdir(tmp_path)
    lines = list(copy_example(name))
    commands = [shlex.split(line, comments=True) for line in lines[lines.index("Next:") + 1 :]]
    for program, *words in filter(None, commands):
        if program == "pip":
            assert set(words[1].removeprefix("bpt[").removesuffix("]").split(",")) <= set(EXTRAS)
        elif program == "python":
            assert_parses(importlib.import_module(words[0].removesuffix(".py").replace("/", ".")), words, monkeypatch)
        elif program == "bpt":
            make_parser().parse_args(words)
        else:
            assert (program, len(words)) == ("mv", 2)
    small = tmp_path / "prototxt" / name / "solver_small.prototxt"
    assert commands[-1][-1].endswith("solver_small.prototxt" if small.exists() else "solver.prototxt")


def assert_parses(script: ModuleType, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A script accepts its command line; it goes no further."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        sys.exit("accepted")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", words)
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        with pytest.raises(SystemExit, match="accepted"):
            script.main()


def test_the_wheel_brings_all_tools() -> None:
    brought = CONFIG["options"]["scripts"].split()
    assert brought == sorted(f"tools/{path.name}" for path in (ROOT / "tools").glob("*.py"))
    # An installer puts its own Python in the place of such a first line.
    assert all((ROOT / tool).read_text().startswith("#!/usr/bin/env python3\n") for tool in brought)


def test_the_wheel_brings_all_networks() -> None:
    brought = {line.strip() for files in CONFIG["options.data_files"].values() for line in files.splitlines()}
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "prototxt").rglob("*.prototxt")}
    assert {f"{folder}/*.prototxt" for folder in folders} <= brought
    assert f"/bpt-{CONFIG['metadata']['version']}-py3-none-any.whl[" in (ROOT / "docs" / "tour.md").read_text()
