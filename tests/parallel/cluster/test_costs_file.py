"""Files of costs: what is written and read, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import bpt
from bpt.base.errors import FileError, WriteError
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.costs_file import MeasuredCosts, check_costs, read_costs, write_costs
from tests.support.costs import COSTS
from tests.support.small_solver import NET, small_solver

CONTENT = {
    "format": 1,
    "bpt": bpt.__version__,
    "net": "small",
    "batch": 8,
    "micro_batches": 2,
    "machine": "host: cpu (Fast)",
    "threads": 2,
    "forward": 4.0,
    "backward": 8.0,
    "update": 0.0,
    "layers": [
        {"layer": "data", "type": "DummyData", "flops": 0, "forward": 0.0, "backward": 0.0},
        {"layer": "conv", "type": "Convolution", "flops": 28160, "forward": 2.0, "backward": 4.0},
        {"layer": "ip", "type": "InnerProduct", "flops": 3096, "forward": 1.0, "backward": 2.0},
        {"layer": "loss", "type": "SoftmaxWithLoss", "flops": 96, "forward": 1.0, "backward": 2.0},
    ],
}


def graph(folder: Path, net: str = NET) -> LayerGraph:
    return build_graph_of(small_solver(folder, net=net).train)


def test_what_is_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "costs.json")
    write_costs(COSTS, path)
    assert json.loads(Path(path).read_text()) == CONTENT
    assert read_costs(path) == COSTS


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="there is no folder"):
        write_costs(COSTS, str(tmp_path / "no" / "costs.json"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "c.json:1:2: is not a file of costs: Expecting property name"),
        ("[]", "c.json: the file must be an object in braces"),
        (json.dumps({}), "c.json: is not a whole file of costs: format is missing"),
        (json.dumps(CONTENT | {"format": 2}), "c.json: format is 2, but this bpt reads a file of costs of format 1"),
        (json.dumps(CONTENT | {"threads": 0}), "c.json: threads must be a whole number of at least 1, found 0"),
        (json.dumps(CONTENT | {"update": -1}), "c.json: update must be a number of at least 0, found -1"),
        (json.dumps(CONTENT | {"layers": [{"layer": 3}]}), "c.json: layers[0].layer must be a text, found 3"),
        (json.dumps(CONTENT | {"layers": [{"layer": "a"}]}), "c.json: is not a whole file of costs: layers[0].type is"),
    ],
)
def test_damaged_files(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    with pytest.raises(FileError, match=re.escape(message)):
        read_costs(str(path))


def test_costs_of_this_net(tmp_path: Path) -> None:
    check_costs(COSTS, graph(tmp_path), "costs.json", "solver.prototxt")


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (replace(COSTS, net="large"), 'it was net "large", this is "small"'),
        (replace(COSTS, batch=4), "it ran in batches of 4, this has batches of 8"),
        (replace(COSTS, layers=COSTS.layers[:-1]), 'layer "loss" was not in it'),
        (replace(COSTS, layers=(*COSTS.layers, COSTS.layers[0])), 'it had a layer "data" more'),
        (
            replace(COSTS, layers=(*COSTS.layers[:2], replace(COSTS.layers[2], name="fc"), COSTS.layers[3])),
            'it had a InnerProduct "fc" where this has a InnerProduct "ip"',
        ),
        (
            replace(COSTS, layers=(COSTS.layers[0], replace(COSTS.layers[1], flops=5000), *COSTS.layers[2:])),
            'layer "conv" took 5,000 floating-point operations, now 28,160',
        ),
    ],
)
def test_costs_of_another_net(costs: MeasuredCosts, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        check_costs(costs, graph(tmp_path), "costs.json", "solver.prototxt")
    assert str(caught.value) == (
        f"costs.json: was not measured for this net: {message}. Measure again, with the same --set: "
        "bpt plan --solver solver.prototxt --measure costs.json"
    )
