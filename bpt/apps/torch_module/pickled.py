"""The pickled form of a Module: the text of its net, its parameters, and the changes to its layers.

The layers themselves are made again from the text, because they may have open files, or classes that pickle cannot
find.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bpt.base.errors import UserError
from bpt.config.plan.nets import NetPlan
from bpt.graph.layer_graph import Param
from bpt.nn.layers import Layer
from bpt.nn.layers.hdf5_output import HDF5Output
from bpt.nn.layers.recurrent import Recurrent
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext

Values = dict[tuple[str, int], nn.Parameter]
"""(layer name, blob index) → values, of the parameters that do not share another's."""


@dataclass(frozen=True)
class ModuleState:
    """The state of a net's layers that is neither in its text nor a parameter.

    Attributes:
        parts: name of a layer, or of a module in it → the attributes to keep: buffers, ``training``, and a layer's
            hooks.
        kept: name of a recurrent layer → its hidden state.
        positions: name of a data layer → the number of samples that it has read.
    """

    parts: Mapping[str, Mapping[str, object]]
    kept: Mapping[str, tuple[Tensor, ...]]
    positions: Mapping[str, int]


def parts_of(net: Net) -> frozenset[str]:
    """Return the names of all modules and parameters in the layers of a net."""
    modules = (name for name, _ in net.layers.named_modules())
    return frozenset(modules) | {name for name, _ in net.layers.named_parameters(remove_duplicate=False)}


def parameters_of(net: Net, parts: frozenset[str]) -> Values:
    """Return the parameters from which ``made_again`` makes the net.

    Args:
        net: the net.
        parts: ``parts_of`` the net when it was made.

    Raises:
        UserError: the net cannot be pickled: a parameter is computed from others, modules were added or removed, or a
            layer writes a file.
    """
    for layer in net.layers:
        if isinstance(layer, HDF5Output):
            raise layer.spec.error("cannot be pickled: the copy would write the same file", "type")
    found = {param.index: blob for param, blob in _blobs(net)}
    for param in net.graph.params:
        if not isinstance(found[param.index], nn.Parameter):
            raise _error(net, param, "is computed from others, because it is pruned or parametrized")
        if found[param.index] is not found[param.owner]:
            raise _error(net, param, "is no longer the parameter that it shares in the text")
        if found[param.index].is_meta:
            raise _error(net, param, "is on the device meta, and has no values")
    for name in sorted(parts_of(net) ^ parts):
        index, _, inner = name.partition(".")
        raise net.layer(net.graph.nodes[int(index)]).spec.error(
            f'cannot be pickled: "{inner}" was {"removed" if name in parts else "added"} after the layer was made, so '
            "its class cannot make it again; pickle the module's state_dict()"
        )
    return {(net.graph.nodes[param.layer].name, param.blob): found[param.index] for param in net.graph.learnable}


def made_again(plan: NetPlan, values: Values, context: PassContext) -> Net:
    """Return the net of ``plan`` with ``values`` as its parameters.

    Raises:
        UserError: the layers have changed, or do not find the files that they read.
    """
    graph = build_graph_of(plan)
    wanted = {(graph.nodes[param.layer].name, param.blob) for param in graph.learnable}
    if changed := wanted ^ values.keys():
        layer, blob = min(changed)
        before = "had" if (layer, blob) in values else "did not have"
        raise UserError(f'layer "{layer}" {before} a parameter {blob} when the module was pickled')
    lost = [value for value in values.values() if value.isnan().all()]
    net = Net(graph, context, values)
    with torch.no_grad():
        for value in lost:  # a Python layer takes parameters of NaN for new ones, and fills them
            value.fill_(torch.nan)
    return net


def state_of(net: Net) -> ModuleState:
    """Return the state of the net's layers, which ``set_state`` restores."""
    recurrent = {name: part for name, part in net.layers.named_modules() if isinstance(part, Recurrent)}
    return ModuleState(
        {name: dict(_attributes(part)) for name, part in net.layers.named_modules()},
        {name: layer.hidden_state for name, layer in recurrent.items()},
        {name: layer.position for name, layer in net.data_layers().items()},
    )


def set_state(net: Net, state: ModuleState) -> None:
    """Restore the state of the net's layers; raise a UserError if a Python layer's class has other modules now."""
    parts = dict(net.layers.named_modules())
    for name, attributes in state.parts.items():
        if name not in parts:
            index, _, inner = name.partition(".")
            raise net.layer(net.graph.nodes[int(index)]).spec.error(
                f'has no "{inner}", but had one when the module was pickled', "type"
            )
        parts[name].__dict__.update(attributes)
    for name, hidden_state in state.kept.items():
        layer = parts[name]
        assert isinstance(layer, Recurrent)
        layer.hidden_state = hidden_state
    for name, position in state.positions.items():
        net.data_layers()[name].position = position


def _blobs(net: Net) -> Iterator[tuple[Param, nn.Parameter]]:
    """Yield the parameters that the layers have now."""
    for param in net.graph.params:
        yield param, net.layer(net.graph.nodes[param.layer]).blobs[param.blob]


def _attributes(part: nn.Module) -> Iterator[tuple[str, object]]:
    """Yield the attributes of a module that its class does not make again."""
    for name, value in vars(part).items():
        if name in ("training", "_buffers") or (isinstance(part, Layer) and "hook" in name):
            yield name, value


def _error(net: Net, param: Param, message: str) -> UserError:
    name = net.graph.nodes[param.layer].name
    return UserError(
        f'the module cannot be pickled: parameter {param.blob} of layer "{name}" {message}; pickle its state_dict()'
    )
