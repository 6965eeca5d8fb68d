"""The costs that a solver names: where they are looked for, and how they are scaled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.costs_file import write_costs
from bpt.parallel.cluster.measured_costs import by_layer, measured_costs
from tests.support.costs import COSTS
from tests.support.small_solver import small_solver
from tests.support.typed import at

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
