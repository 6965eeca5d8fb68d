"""The measured costs of the layers of a training net on one machine, as a JSON file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from bpt.base.errors import FileError
from bpt.base.user_files import JsonValue, read_json, write_json
from bpt.base.version import VERSION
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.base import batch_of

FORMAT = 1


@dataclass(frozen=True)
class MeasuredLayerCost:
    """The measured cost of one layer for a whole batch.

    Attributes:
        name, type: of the layer.
        flops: floating-point operations of its forward pass.
        forward, backward: seconds, each layer timed by itself.
    """

    name: str
    type: str
    flops: int
    forward: float
    backward: float


@dataclass(frozen=True)
class MeasuredCosts:
    """The measured costs of a training net on one machine; all times are medians, in seconds.

    Attributes:
        net: its name.
        batch: samples of a pass.
        micro_batches: the number of its micro-batches; times are those of all of them together.
        machine: where it was measured, in words.
        threads: the number of threads that computed.
        forward, backward: of the whole net in one piece, which is faster than layer by layer.
        update: of the solver's update rule for all parameters.
        layers: in order of execution.
    """

    net: str
    batch: int
    micro_batches: int
    machine: str
    threads: int
    forward: float
    backward: float
    update: float
    layers: tuple[MeasuredLayerCost, ...]


def write_costs(costs: MeasuredCosts, path: str) -> None:
    """Write ``costs`` to the file at ``path``, completely or not at all.

    Raises:
        WriteError: it could not be written.
    """
    write_json(_to_json(costs), path)


def read_costs(path: str) -> MeasuredCosts:
    """Return the costs in the file at ``path``.

    Raises:
        FileError: it is missing, of another format, or damaged; it says where.
    """
    top = read_json(path, "file of costs", FORMAT)
    return MeasuredCosts(
        top["net"].text(), top["batch"].integer(least=0), top["micro_batches"].integer(least=1),
        top["machine"].text(), top["threads"].integer(least=1),
        top["forward"].seconds(), top["backward"].seconds(), top["update"].seconds(),
        tuple(_layer(entry) for entry in top["layers"].entries()),
    )  # fmt: skip


def check_costs(costs: MeasuredCosts, graph: LayerGraph, path: str, solver: str) -> None:
    """Refuse costs that are not those of ``graph``.

    Args:
        solver: the path of the solver, for the message.

    Raises:
        FileError: it says what differs, and how to measure again.
    """
    if difference := next(_differences(costs, graph), ""):
        raise FileError(
            path,
            f"was not measured for this net: {difference}. Measure again, with the same --set: "
            f"bpt plan --solver {solver} --measure {path}",
        )


def _differences(costs: MeasuredCosts, graph: LayerGraph) -> Iterator[str]:
    """Yield the differences between the net of ``costs`` and ``graph``."""
    if costs.net != graph.name:
        yield f'it was net "{costs.net}", this is "{graph.name}"'
    if costs.batch != (batch := batch_of(graph)):
        yield f"it ran in batches of {costs.batch}, this has batches of {batch}"
    for layer, node in zip_longest(costs.layers, graph.nodes):
        if node is None:
            yield f'it had a layer "{layer.name}" more'
        elif layer is None:
            yield f'layer "{node.name}" was not in it'
        elif (layer.name, layer.type) != (node.name, node.type):
            yield f'it had a {layer.type} "{layer.name}" where this has a {node.type} "{node.name}"'
        elif layer.flops != node.flops:
            yield f'layer "{node.name}" took {layer.flops:,} floating-point operations, now {node.flops:,}'


def _to_json(costs: MeasuredCosts) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "bpt": VERSION,
        "net": costs.net,
        "batch": costs.batch,
        "micro_batches": costs.micro_batches,
        "machine": costs.machine,
        "threads": costs.threads,
        "forward": costs.forward,
        "backward": costs.backward,
        "update": costs.update,
        "layers": [
            {"layer": layer.name, "type": layer.type, "flops": layer.flops}
            | {"forward": layer.forward, "backward": layer.backward}
            for layer in costs.layers
        ],
    }


def _layer(entry: JsonValue) -> MeasuredLayerCost:
    return MeasuredLayerCost(
        entry["layer"].text(), entry["type"].text(), entry["flops"].integer(least=0),
        entry["forward"].seconds(), entry["backward"].seconds(),
    )  # fmt: skip
