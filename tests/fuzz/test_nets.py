"""Nets of one layer with odd settings: their graphs, and a pass of those that are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import RunError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.system.device import CPU
from bpt.train.runtime import net_on_device as making
from tests.fuzz.engine import run_cases
from tests.fuzz.targets.nets import Nets


def test_nets_run_or_are_refused(tmp_path: Path) -> None:
    run_cases(Nets(tmp_path), 1, range(300))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (
            'type: "Input" top: "y" input_param { shape { dim: 9999999999 dim: 9999999999 } }',
            'layer "L": top "y" of shape (9999999999, 9999999999) takes 372529029771.7 GiB',
        ),
        (
            'type: "DummyData" top: "y" dummy_data_param { shape { dim: 9999999999 dim: 999 } }',
            'layer "L": top "y" of shape (9999999999, 999) takes 37215.7 GiB',
        ),
        (
            'type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4294967295 }',
            'layer "L": parameter 0 of shape (4294967295, 3) takes 48.0 GiB',
        ),
        (
            'type: "Tile" bottom: "x" top: "y" tile_param { tiles: 2147483647 }',
            'layer "L": top "y" of shape (2, 6442450941) takes 48.0 GiB',
        ),
    ],
)
def test_what_no_memory_holds_is_refused_by_layer_and_size(
    layer: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of it is allocated."""
    monkeypatch.setattr(making, "obtainable_memory", lambda device: 16 * 2**30)
    first = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } } '
    text = f'{first if "bottom" in layer else ""}layer {{ name: "L" {layer} }}'
    tmp_path.joinpath("net.prototxt").write_text(text)
    graph = build_graph_of(file_plan(str(tmp_path / "net.prototxt"), pb.TRAIN))
    with pytest.raises(RunError) as caught:
        making.make_net(graph, CPU)
    assert str(caught.value) == f"{words}, but the device has 16.0 GiB of memory"
