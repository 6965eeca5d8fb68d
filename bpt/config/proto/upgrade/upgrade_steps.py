"""All upgrades of a net, and of a solver, in Caffe's order and words.

They cover three kinds of old fields. V1 nets have data transformations in data_param, image_data_param and
window_data_param. Inputs of a net were fields of it. BatchNorm layers have training settings for each of their three
blobs, which Caffe now ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bpt.base.errors import PrototxtError
from bpt.base.origin import FieldPath, Origin, locate
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.upgrade import fork_upgrades, v0, v1
from bpt.config.proto.upgrade.written import Note, Written, insert_elements, remove_elements

_SOURCES = {
    pb.V1LayerParameter.DATA: "data_param",
    pb.V1LayerParameter.IMAGE_DATA: "image_data_param",
    pb.V1LayerParameter.WINDOW_DATA: "window_data_param",
}
_TRANSFORMATIONS = ("scale", "mean_file", "crop_size", "mirror")


def move_transformations(layers: Iterable[Written[pb.V1LayerParameter]]) -> bool:
    """Move the old fields to ``transform_param``, overwriting it; return whether there were any."""
    found = False
    for layer in layers:
        name = _SOURCES.get(layer.message.type)
        if name is not None:
            found |= _move(layer, name)
    return found


def _move(layer: Written[pb.V1LayerParameter], name: str) -> bool:
    old: Any = getattr(layer.message, name)
    fields = [field for field in _TRANSFORMATIONS if old.HasField(field)]
    for field in fields:
        setattr(layer.message.transform_param, field, getattr(old, field))
        old.ClearField(field)
        origin = layer.origins.pop((name, field), None)
        if origin is not None:
            layer.origins[("transform_param", field)] = origin
            layer.origins.setdefault(("transform_param",), origin)
    return bool(fields)


_INPUTS = ("input", "input_dim", "input_shape")
_DIMENSIONS = 4  # the number that input_dim gives for each input


def inputs_as_layer(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath
) -> Origin | None:
    """Turn ``input``, ``input_shape`` and ``input_dim`` into a first layer "input"; return their places.

    Old files of weights (``path`` None) name inputs without their dimensions; these inputs are dropped, as in Caffe. So
    are inputs of a text that a layer also makes.

    Raises:
        PrototxtError: the inputs and their dimensions do not match.
    """
    field = next(name for name in _INPUTS if getattr(net, name))
    place = None if path is None else locate(origins, (*where, field), path)
    made = {top for layer in net.layer for top in layer.top}
    if net.input_dim or net.input_shape or (path is not None and not made.issuperset(net.input)):
        layer = pb.LayerParameter(name="input", type="Input", top=net.input)
        layer.input_param.shape.extend(_shapes(net, place))
        _put_first(layer, net, origins, (*where, "layer"), place)
    for field in _INPUTS:
        net.ClearField(field)
    return place


def _put_first(
    layer: pb.LayerParameter,
    net: pb.NetParameter,
    origins: dict[FieldPath, Origin],
    where: FieldPath,
    place: Origin | None,
) -> None:
    """Put ``layer``, from ``place``, before the layers of ``net``, whose list is at ``where``."""
    first = Written(layer, {} if place is None else {(): place}, None)
    layers = [first, *remove_elements(net.layer, origins, where, None)]
    messages = [each.message for each in layers]
    del net.layer[:]
    net.layer.extend(messages)
    insert_elements(layers, origins, where)


def _shapes(net: pb.NetParameter, place: Origin | None) -> list[pb.BlobShape]:
    """Return the shape of each input; Caffe takes ``input_shape`` if both forms are given."""
    count = len(net.input)
    if not count:
        field = "input_shape" if net.input_shape else "input_dim"
        raise PrototxtError(f'{field} needs "input": the name of the blob that has these dimensions', place)
    if net.input_shape:
        if len(net.input_shape) != count:
            raise PrototxtError(f'{_names(count)} as many "input_shape", not {len(net.input_shape)}', place)
        return list(net.input_shape)
    wanted = _DIMENSIONS * count
    if len(net.input_dim) != wanted:
        raise PrototxtError(
            f'{_names(count)} {wanted} "input_dim" ({_DIMENSIONS} for each), not {len(net.input_dim)}; '
            '"input_shape" takes any number of dimensions',
            place,
        )
    starts = range(0, len(net.input_dim), _DIMENSIONS)
    return [pb.BlobShape(dim=net.input_dim[start : start + _DIMENSIONS]) for start in starts]


def _names(count: int) -> str:
    """Return words such as ``2 "input" need``."""
    return f'{count} "input" {"needs" if count == 1 else "need"}'


_BATCH_NORM_BLOBS = 3


def freeze_batch_norm(net: pb.NetParameter) -> list[int]:
    """Set ``lr_mult`` and ``decay_mult`` of BatchNorm layers with three ``param`` to 0.

    Returns the numbers of the layers that were changed.
    """
    changed = []
    for index, layer in enumerate(net.layer):
        if layer.type != "BatchNorm" or len(layer.param) != _BATCH_NORM_BLOBS:
            continue
        if all(param.lr_mult == 0 == param.decay_mult for param in layer.param):
            continue
        for param in layer.param:
            param.lr_mult = param.decay_mult = 0
        changed.append(index)
    return changed


_DONE = "Successfully upgraded file specified using deprecated "


def upgrade_net(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath = ()
) -> list[Note]:
    """Upgrade old fields of ``net`` to today's, in place.

    These are V0 and V1 layers (``layers``), old settings of data transformations, ``input`` with ``input_shape`` or
    ``input_dim``, ``param`` of BatchNorm layers, and settings that forks write in another way.

    Args:
        where: the path of ``net`` in ``origins``, which are moved with it.
        path: the file of the text; None if there is no text.

    Raises:
        PrototxtError: the net has old layers along with new ones, of which Caffe would drop some, or a field that Caffe
            refuses.
    """
    notes = _upgrade_layers(net, origins, path, where) if net.layers else []
    if net.input or net.input_shape or net.input_dim:
        place = inputs_as_layer(net, origins, path, where)
        notes.append(Note(f"{_DONE}input fields", place))
    if changed := freeze_batch_norm(net):
        place = None if path is None else locate(origins, (*where, "layer", changed[0]), path)
        notes.append(Note("Successfully upgraded batch norm layers using deprecated params", place))
    return [*notes, *fork_upgrades.upgrade(net, origins, path, where)]


def _upgrade_layers(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath
) -> list[Note]:
    """Replace ``layers`` by ``layer``."""
    place = None if path is None else locate(origins, (*where, "layers", 0), path)
    if net.layer:
        new = "" if path is None else f" (at {locate(origins, (*where, 'layer', 0), path)})"
        raise PrototxtError(
            f'the net has layers in the old format, "layers", along with new ones, "layer"{new}, which Caffe would '
            'drop; write all of them as "layer"',
            place,
        )
    notes: list[Note] = []
    old = remove_elements(net.layers, origins, (*where, "layers"), path)
    if any(layer.message.HasField("layer") for layer in old):
        old, notes = v0.upgrade(old, net.input)
        notes.append(Note(f"{_DONE}V0LayerParameter", place))
    if move_transformations(old):
        notes.append(Note(f"{_DONE}data transformation parameters", place))
    layers = [v1.upgrade(layer) for layer in old]
    notes.append(Note(f"{_DONE}V1LayerParameter", place))
    del net.layers[:]
    net.layer.extend(layer.message for layer in layers)
    insert_elements(layers, origins, (*where, "layer"))
    return notes


_SOLVER_TYPES = {
    pb.SolverParameter.SGD: "SGD",
    pb.SolverParameter.NESTEROV: "Nesterov",
    pb.SolverParameter.ADAGRAD: "AdaGrad",
    pb.SolverParameter.RMSPROP: "RMSProp",
    pb.SolverParameter.ADADELTA: "AdaDelta",
    pb.SolverParameter.ADAM: "Adam",
}
_TYPE_DONE = "Successfully upgraded file specified using deprecated 'solver_type' field (enum) to 'type' field (string)"


def upgrade_solver(param: pb.SolverParameter, origins: dict[FieldPath, Origin], path: str) -> list[Note]:
    """Upgrade the old enum ``solver_type`` to ``type``, and the nets inside the solver.

    Raises:
        PrototxtError: both are set, or :func:`upgrade_net` fails.
    """
    notes = []
    if param.HasField("solver_type"):
        old = locate(origins, ("solver_type",), path)
        if param.HasField("type"):
            new = locate(origins, ("type",), path)
            raise PrototxtError(f'"solver_type" is the old form of "type", given at {new}; keep one of them', old)
        param.type = _SOLVER_TYPES[param.solver_type]
        param.ClearField("solver_type")
        origins[("type",)] = origins.pop(("solver_type",), old)
        notes.append(Note(f'{_TYPE_DONE}: type: "{param.type}"', old))
    for field in ("net_param", "train_net_param"):
        if param.HasField(field):
            notes += upgrade_net(getattr(param, field), origins, path, (field,))
    for index, net in enumerate(param.test_net_param):
        notes += upgrade_net(net, origins, path, ("test_net_param", index))
    return notes
