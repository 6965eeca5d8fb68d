"""Messages name the parameters of Python to a Python program, and flags to users of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bpt
from bpt.base.caller import for_caller, on_command_line
from bpt.base.errors import UserError
from bpt.cli.main import main

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 4 dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
STAGED = NET.replace('name: "ip"', 'name: "ip" include { stage: "deep" min_level: 2 }')
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET)
    Path("staged.prototxt").write_text(STAGED)
    Path("solver.prototxt").write_text(SOLVER)
    bpt.Net("net.prototxt", bpt.TEST).save("w.caffemodel")
    return tmp_path


def preprocess_by_module(picture: str) -> None:
    preprocess: Any = bpt.load_module("net.prototxt", "w.caffemodel").preprocess
    preprocess(picture)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bpt.get_solver("solver.prototxt", "base_lrr: 1"), "\n  overrides 'base_lrr: 1'\n             ^"),
        (
            lambda: bpt.get_solver("solver.prototxt", "parallel_param { exchange: AGWU }"),
            "give overrides='parallel_param { exchange: ALLREDUCE",
        ),
        (lambda: bpt.get_solver("solver.prototxt").restore("w.caffemodel"), "use solver.net.copy_from(FILE)"),
        (lambda: preprocess_by_module("x.png"), "give preprocessing=FILE"),
        (lambda: bpt.Net("staged.prototxt", bpt.TEST), "level=2 and stages=['deep']"),
        (lambda: bpt.Net("net.prototxt", bpt.TEST).forward(end="foo"), 'no layer "foo" (it has: data, ip, prob)'),
        (lambda: bpt.Net("net.prototxt", bpt.TEST).forward(start="prop"), 'did you mean "prob"?'),
    ],
)
def test_a_python_program_is_told_parameters(call: Callable[[], object], words: str, folder: Path) -> None:
    (folder / "x.png").touch()
    with pytest.raises(UserError) as caught:
        call()
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "--solver=solver.prototxt", "--set=base_lrr: 1"], "--set 'base_lrr: 1'"),
        (["train", "--solver=solver.prototxt", "--snapshot=w.caffemodel"], "or use --weights"),
        (["classify", "--model=net.prototxt", "--weights=w.caffemodel", "x.png"], "give --preprocessing FILE"),
        (["classify", "--model=staged.prototxt", "--weights=w.caffemodel", "x.png"], "--level 2 and --stage deep"),
    ],
)
def test_the_command_line_is_told_flags(
    words: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "x.png").touch()
    assert main(words) == 2
    assert told in capsys.readouterr().err
    assert for_caller("flag", "parameter") == "parameter"  # once the command has ended


def test_a_command_within_a_command() -> None:
    with on_command_line():
        with on_command_line():
            assert for_caller("flag", "parameter") == "flag"
        assert for_caller("flag", "parameter") == "flag"
    assert for_caller("flag", "parameter") == "parameter"
