"""The measured costs of the training net's layers, from a file that the solver names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bpt.base.errors import FileError, PrototxtError
from bpt.config.proto.sources import resolve_path, searched_places
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.cluster.costs_file import MeasuredCosts, check_costs, read_costs

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

PATH = ("parallel_param", "pipeline_param")


def measured_costs(plan: RunPlan, graph: LayerGraph) -> Mapping[str, tuple[float, float]] | None:
    """Return seconds of each layer, forward and backward, for a whole batch, from ``pipeline_param { costs }``.

    Layers were timed one by one, which takes longer than the net in one piece; here they are scaled to add up to that.

    Returns:
        Layer name → (forward, backward); ``None``: the solver names no file.

    Raises:
        PrototxtError: there is no such file.
        FileError: it is damaged, or was measured for another net or another batch.
    """
    costs = read_costs_of(plan, graph)
    return None if costs is None else by_layer(costs)


def read_costs_of(plan: RunPlan, graph: LayerGraph) -> MeasuredCosts | None:
    """Return the whole content of the file ``pipeline_param { costs }``."""
    named = plan.parallel_param.pipeline_param.costs
    if not named:
        return None
    path = file_of(plan, "costs", named)
    costs = read_costs(path)
    check_costs(costs, graph, path, plan.path)
    return costs


def by_layer(costs: MeasuredCosts) -> dict[str, tuple[float, float]]:
    """Return layer name → seconds (forward, backward), scaled to add up to the time of the whole net.

    Layers without parameters may have one name: each of them gets their mean.
    """
    forward = _factor(costs.forward, [layer.forward for layer in costs.layers])
    backward = _factor(costs.backward, [layer.backward for layer in costs.layers])
    found: dict[str, list[tuple[float, float]]] = {}
    for layer in costs.layers:
        found.setdefault(layer.name, []).append((layer.forward * forward, layer.backward * backward))
    return {
        name: (sum(f for f, _ in times) / len(times), sum(b for _, b in times) / len(times))
        for name, times in found.items()
    }


def file_of(plan: RunPlan, field: str, named: str) -> str:
    """Return the file that ``pipeline_param { <field>: "<named>" }`` names, in the current or the solver's folder.

    Raises:
        PrototxtError: it is in neither; at the field.
    """
    path = resolve_path(named, plan.path)
    if not os.path.exists(path):
        raise error_of_file(plan, field, named, f"no such file ({searched_places(named, plan.path)})")
    return path


def error_of_file(plan: RunPlan, field: str, named: str, message: str) -> PrototxtError | FileError:
    """Return the error about the file that ``pipeline_param { <field>: "<named>" }`` names, at the field.

    If a flag names the file, the solver has no such place, and the error is that of the file.
    """
    where = (*PATH, field)
    if where not in plan.origins:
        return FileError(named, message)
    return PrototxtError(f"pipeline_param: {field}: {named}: {message}", plan.origin(*where))


def _factor(whole: float, parts: list[float]) -> float:
    together = sum(parts)
    return whole / together if together else 1.0
