"""Files of costs: what is written and read, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import bpt
from bpt.base.errors import FileError, PrototxtError, WriteError
from bpt.config.plan.run_plan import RunPlan
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.costs_file import MeasuredCosts, check_costs, read_costs, write_costs
from bpt.parallel.cluster.measured_costs import by_layer, measured_costs
from tests.support.costs import COSTS
from tests.support.small_solver import NET, small_solver
from tests.support.typed import at

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


NAMED = 'parallel_param { pipeline_param { costs: "c.json" } }'


def named(folder: Path) -> RunPlan:
    """A solver that names the file ``c.json`` beside it."""
    return small_solver(folder, NAMED)


def test_no_file_is_named(tmp_path: Path) -> None:
    source = small_solver(tmp_path)
    assert measured_costs(source, build_graph_of(source.train)) is None


def test_a_file_beside_the_solver(tmp_path: Path) -> None:
    write_costs(COSTS, str(tmp_path / "c.json"))
    source = named(tmp_path)
    expected = {"data": (0.0, 0.0), "conv": (2.0, 4.0), "ip": (1.0, 2.0), "loss": (1.0, 2.0)}
    assert measured_costs(source, build_graph_of(source.train)) == expected


def test_layers_are_scaled_to_the_net_in_one_piece() -> None:
    """Forward took half of what the layers took by themselves, backward a quarter."""
    scaled = by_layer(replace(COSTS, forward=2.0, backward=2.0))
    assert scaled == {"data": (0.0, 0.0), "conv": (1.0, 1.0), "ip": (0.5, 0.5), "loss": (0.5, 0.5)}


def test_namesakes_get_their_mean() -> None:
    one, other = replace(COSTS.layers[2], name="a", forward=1.0), replace(COSTS.layers[2], name="a", forward=3.0)
    assert by_layer(replace(COSTS, layers=(one, other), forward=4.0, backward=4.0)) == {"a": (2.0, 2.0)}


def test_nothing_takes_time() -> None:
    still = replace(COSTS, forward=0.0, backward=0.0, layers=COSTS.layers[:1])
    assert by_layer(still) == {"data": (0.0, 0.0)}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    source = named(tmp_path)
    with pytest.raises(PrototxtError, match=r"^pipeline_param: costs: c\.json: no such file \(looked for /" + at(35)):
        measured_costs(source, build_graph_of(source.train))


def test_a_flags_file_that_is_not_there(tmp_path: Path) -> None:
    source = small_solver(tmp_path).with_pipeline(costs="c.json")
    with pytest.raises(FileError, match=r"^c\.json: no such file \(looked for /"):
        measured_costs(source, build_graph_of(source.train))


def test_costs_of_another_batch(tmp_path: Path) -> None:
    write_costs(replace(COSTS, batch=16), str(tmp_path / "c.json"))
    source = named(tmp_path)
    with pytest.raises(FileError, match="it ran in batches of 16, this has batches of 8"):
        measured_costs(source, build_graph_of(source.train))
