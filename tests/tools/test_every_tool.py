"""What all programs in ``tools/`` have in common."""

from __future__ import annotations

import importlib
import os

import pytest

from tests.support.commands import Tool
from tests.support.paths import ROOT

FOLDER = ROOT / "tools"
NAMES = (
    "convert_imageset", "convert_annoset", "convert_mnist_data", "convert_cifar_data", "compute_image_mean",
    "extract_features", "draw_net", "parse_log", "plot_training_log", "net_summary",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_program_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = FOLDER / f"{name}.py"
    assert os.access(file, os.X_OK)
    assert file.read_text().startswith("#!/usr/bin/env python3\n")
    module = importlib.import_module(f"tools.{name}")
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {name}.py ")
    assert f"    tools/{name}.py " in shown
    assert "Exit status: 0 done;" in shown


@pytest.mark.parametrize("name", NAMES)
def test_a_mistyped_command_line_is_answered_in_one_line(name: str, tool: Tool) -> None:
    for words in ([], ["a", "b", "c", "--wrong"]):
        outcome = tool(name, *words)
        assert outcome.status == 2
        assert outcome.error
