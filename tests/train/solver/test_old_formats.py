"""Nets in Caffe's old formats are built and run like those that Caffe upgraded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bpt.base.errors import PrototxtError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from tests.support.training import SNAPSHOTS

UPGRADE = SNAPSHOTS / "upgrade"


@torch.no_grad()
def built(path: Path) -> Net:
    """The net of the file at ``path`` for testing, all its parameters between 0 and 1."""
    net = Net(build_graph_of(file_plan(str(path), pb.TEST)))
    random = torch.Generator().manual_seed(1)
    for value in net.values_by_name().values():
        value.uniform_(generator=random)
    return net.eval()


@pytest.mark.parametrize("name", ["v0_deploy", "v2_inputfields_bn"])
def test_the_same_numbers(name: str) -> None:
    old, new = (built(UPGRADE / f"{name}{suffix}.prototxt") for suffix in ("", ".upgraded"))
    assert [(node.name, node.type) for node in old.graph.nodes] == [(node.name, node.type) for node in new.graph.nodes]
    x = torch.randn(old.graph.edges[0].shape, generator=torch.Generator().manual_seed(0))
    ours, theirs = (net(x) for net in (old, new))
    tops = (ours, theirs) if isinstance(ours, tuple) else ((ours,), (theirs,))
    for a, b in zip(*tops, strict=True):
        assert torch.equal(a, b)
        assert a.std() > 0


def test_mistakes_are_shown_in_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'input: "x" input_dim: [1, 2, 9, 9]\n'
        'layers { layer { name: "p" type: "padding" pad: 1 } bottom: "x" top: "p" }\n'
        'layers { layer { name: "c" type: "conv" kernelsize: 3\n'
        "  num_output: 3\n"
        "  group: 2 }\n"
        '  bottom: "p" top: "c" }\n'
    )
    with pytest.raises(PrototxtError) as caught:
        build_graph_of(file_plan(str(path), pb.TEST))
    assert str(caught.value) == f'{path}:5:3: layer "c": num_output 3 does not divide into 2 groups'
