"""The command line as a whole: help, version, start-up, devices, and what ends a program that is not its fault."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import bpt
from bpt.base import errors
from bpt.cli import main as cli
from bpt.cli.options import words
from tests.support.commands import Bpt

COMMANDS = ("train", "test", "time", "device_query")


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_comes_at_once_without_torch() -> None:
    """Also: ``python -m bpt`` is ``bpt``."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bpt", "--help"], capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("usage: bpt ")
    imported = {line.rpartition("|")[2].strip() for line in process.stderr.splitlines()}
    assert "bpt.cli.train" in imported
    assert not {"torch", "numpy", "google.protobuf", "tqdm"} & imported


def test_bpt_alone_shows_its_help(bpt: Bpt, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = bpt()
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == help_of(capsys)
    assert all(f"\n    {command} " in outcome.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_explained_in_both_spellings(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, command)
    choices: list[Any] = [action.choices for action in cli.make_parser()._actions if action.choices]
    [chosen] = [each[command] for each in choices]
    flags = [action for action in chosen._actions if action.dest != "help"]
    assert flags
    for action in flags:
        short, long = action.option_strings
        assert long == f"-{short}"
        assert long.removeprefix("--").replace("-", "_") == action.dest
        value = {0: "", "?": f" [{action.metavar}]", "*": f" [{action.metavar} ...]"}.get(
            action.nargs, f" {action.metavar}"
        )
        assert f"  {short}, {long}{value}" in text
        assert action.help


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("train solver.prototxt", "--solver solver.prototxt"),
        ("train net.prototxt", "--solver net.prototxt"),
        ("train --gpu 0 dir/solver.prototxt other", "--solver dir/solver.prototxt"),
        ("train --solver=solver.prototxt w.caffemodel", "--weights w.caffemodel"),
        ("train --solver=solver.prototxt w.caffemodel.h5", "--weights w.caffemodel.h5"),
        ("train --solver=solver.prototxt s.solverstate", "--snapshot s.solverstate"),
        ("check solver.prototxt", "--solver solver.prototxt"),
        ("test net.prototxt", "--model net.prototxt"),
        ("time net.prototxt", "--model net.prototxt"),
        ("time dir/solver.prototxt", "--solver dir/solver.prototxt"),
        ("plot --log a.log b.log", "--log b.log"),
        ("time w.caffemodel", ""),  # takes no weights
        ("train a.log", ""),
        ("train none.prototxt", ""),
        ("train dir", ""),
        ("device_query solver.prototxt", ""),
    ],
)
def test_a_file_without_its_flag(
    words: str, hint: str, bpt: Bpt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    texts = ("net.prototxt", "solver.prototxt", "dir/solver.prototxt")
    for name in (*texts, "a.log", "b.log", "w.caffemodel", "w.caffemodel.h5", "s.solverstate"):
        (tmp_path / name).touch()
    command, *more = words.split()
    outcome = bpt(command, *more)
    assert outcome.status == 2
    assert outcome.error.startswith("unrecognized arguments: ")
    assert outcome.error.endswith(f"; did you mean {hint}?" if hint else f"(bpt {command} --help explains)")


@pytest.mark.parametrize("flag", ["-version", "--version", "-V", "version"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([flag])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"bpt version {bpt.__version__}\n"


def test_python_m_bpt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", lambda: 7)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("bpt", run_name="__main__")
    assert ended.value.code == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], 'unknown command "trian"; did you mean "train"?'),
        (["predict"], 'unknown command "predict"; did you mean "classify"?'),
        (["fit"], 'unknown command "fit"; did you mean "train"?'),
        (["eval"], 'unknown command "eval"; did you mean "test"?'),
        (["--solver", "a b"], "a command comes before its flags; did you mean: bpt train --solver 'a b'"),
        (["-model=m"], "a command comes before its flags; did you mean: bpt test -model=m"),
        (["train", "--solvr=x"], 'unrecognized arguments: --solvr=x; did you mean "--solver"?'),
        (["train", "--solver"], "--solver: expected one argument (bpt train --help explains)"),
        (["train", "x"], "unrecognized arguments: x (bpt train --help explains)"),
        (["train", "--solver=x", "--level=y"], '--level: takes a whole number, found "y" (bpt train --help explains)'),
        (["test", "--iterations", "-1"], '--iterations: takes a whole number of at least 1, found "-1" '
         "(bpt test --help explains)"),
        (["test", "--auc=maybe"], '--auc: takes no value, found "maybe" (bpt test --help explains)'),
    ],
)  # fmt: skip
def test_mistyped_words(arguments: list[str], message: str, bpt: Bpt) -> None:
    outcome = bpt(*arguments)
    assert outcome.error == message
    assert (outcome.status, outcome.out) == (2, "")


@pytest.mark.parametrize("spelling", [["-solver", "nope"], ["--solver", "nope"], ["--solver=nope"], ["-solver=nope"]])
def test_all_of_caffes_spellings(spelling: list[str], bpt: Bpt) -> None:
    assert bpt("train", *spelling).error.startswith("nope: no such file")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (errors.UserError("wrong"), 2, "error: wrong\n"),
        (errors.RunError("failed"), 1, "error: failed\n"),
        (KeyboardInterrupt(), 1, "error: interrupted\n"),
        (MemoryError(), 1, "error: out of memory\n"),
        (OSError(5, "Input/output error", "a.txt"), 1, "error: [Errno 5] Input/output error: 'a.txt'\n"),
    ],
)
def test_what_ends_a_command(
    error: BaseException, status: int, line: str, bpt: Bpt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object, job: object) -> None:
        raise error

    monkeypatch.setattr(cli.COMMANDS["device_query"], "run", fail)
    outcome = bpt("device_query")
    assert (outcome.status, outcome.out, outcome.err) == (status, "", line)


def test_an_interruption_during_start_up_is_told_in_one_line(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    """While modules are imported, and nobody else can tell."""

    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    outcome = bpt("device_query")
    assert (outcome.status, outcome.out, outcome.err) == (1, "", "error: interrupted\n")


INTERRUPTED = """
import signal, sys
from bpt.cli.main import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = ["bpt", "device_query"]
sys.exit(main())
"""


def test_ctrl_c_while_torch_is_imported() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (1, "", "error: interrupted\n")


@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_a_reader_that_has_had_enough(flags: list[str]) -> None:
    """As ``head``: it ends without a word, whether the output is written at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        process = subprocess.run(
            [sys.executable, *flags, "-m", "bpt", "device_query"],
            stdout=pipe, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (process.returncode, process.stderr) == (1, "")


def test_another_pipe_that_is_broken_is_told(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: object, job: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(cli.COMMANDS["device_query"], "run", fail)
    assert bpt("device_query").error == "[Errno 32] Broken pipe"


def test_words_of_a_list() -> None:
    assert words("a,b") == ("a", "b")
    assert words(",a,") == ("a",)
    assert words("") == ()


def test_device_query_without_a_gpu(bpt: Bpt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for flags in ([], ["--gpu=all"]):
        outcome = bpt("device_query", *flags)
        assert (outcome.status, outcome.err) == (0, "")
        cuda, cpu = outcome.out.splitlines()
        assert cuda.startswith("CUDA: no usable device")
        assert cpu.startswith(f"CPU: {torch.get_num_threads()} threads, ")
