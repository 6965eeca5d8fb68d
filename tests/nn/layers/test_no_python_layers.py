"""Python layers are code, and can be refused before any of it is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bpt.base.errors import LayerError
from bpt.cli.main import BUILD_NETS, COMMANDS, make_parser
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers.python_class import REFUSED
from bpt.nn.net_graph import build_graph_of


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("sly_layer.py").write_text('open("ran", "w").close()\nimport torch\nclass L(torch.nn.Identity): pass\n')
    Path("net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3] } } }\n'
        'layer { name: "sly" type: "Python" bottom: "x" top: "y" python_param { module: "sly_layer" layer: "L" } }\n'
    )


@pytest.mark.parametrize("value", ["1", "yes"])
def test_nothing_of_it_is_run(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REFUSED, value)
    with pytest.raises(LayerError) as caught:
        build_graph_of(file_plan("net.prototxt", pb.TEST))
    assert str(caught.value) == (
        'net.prototxt:2:21: layer "sly": is code: sly_layer.L would be run with all rights of yours, and '
        "--no-python-layers (or BPT_NO_PYTHON_LAYERS in the environment) refuses that"
    )
    assert not Path("ran").exists()


@pytest.mark.parametrize("value", ["", "0"])
def test_else_it_is(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REFUSED, value)
    monkeypatch.delitem(sys.modules, "sly_layer", raising=False)
    build_graph_of(file_plan("net.prototxt", pb.TEST))
    assert Path("ran").exists()
    monkeypatch.delitem(sys.modules, "sly_layer", raising=False)


def test_every_command_that_builds_nets_has_the_flag() -> None:
    others = {"new", "watch", "plot", "report", "convert", "example", "completion", "device_query", "help"}
    assert set(COMMANDS) - set(BUILD_NETS) == others
    for command in BUILD_NETS:
        assert make_parser().parse_args([command, "--no-python-layers"]).no_python_layers
