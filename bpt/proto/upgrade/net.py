"""All upgrades of a net, in Caffe's order and words."""

from __future__ import annotations

from bpt.errors import PrototxtError
from bpt.origin import FieldPath, Origin, locate
from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade import batch_norm, inputs, transformation, v0, v1
from bpt.proto.upgrade.note import Note
from bpt.proto.upgrade.written import put, take

_DONE = "Successfully upgraded file specified using deprecated "


def upgrade_net(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath = ()
) -> list[Note]:
    """Turns old fields of ``net`` into today's, in place.

    These are V0 and V1 layers (``layers``), old settings of how data are transformed, ``input`` with ``input_shape``
    or ``input_dim``, and ``param`` of BatchNorm layers. ``where`` is the path of ``net`` in ``origins``, which follow
    what moves; ``path`` is the text it is from, None if it is from no text.

    Raises PrototxtError if the net has old layers along with new ones, of which Caffe would drop some, or anything
    in it that Caffe refuses.
    """
    notes = _upgrade_layers(net, origins, path, where) if net.layers else []
    if net.input or net.input_shape or net.input_dim:
        place = inputs.upgrade(net, origins, path, where)
        notes.append(Note(f"{_DONE}input fields", place))
    changed = batch_norm.upgrade(net)
    if changed:
        place = None if path is None else locate(origins, (*where, "layer", changed[0]), path)
        notes.append(Note("Successfully upgraded batch norm layers using deprecated params", place))
    return notes


def _upgrade_layers(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath
) -> list[Note]:
    """Replaces ``layers`` by ``layer``."""
    place = None if path is None else locate(origins, (*where, "layers", 0), path)
    if net.layer:
        new = "" if path is None else f" (at {locate(origins, (*where, 'layer', 0), path)})"
        raise PrototxtError(
            f'the net has layers in the old format, "layers", along with new ones, "layer"{new}, which Caffe would '
            'drop; write all of them as "layer"',
            place,
        )
    notes: list[Note] = []
    old = take(net.layers, origins, (*where, "layers"), path)
    if any(layer.message.HasField("layer") for layer in old):
        old, notes = v0.upgrade(old, net.input)
        notes.append(Note(f"{_DONE}V0LayerParameter", place))
    if transformation.upgrade(old):
        notes.append(Note(f"{_DONE}data transformation parameters", place))
    layers = [v1.upgrade(layer) for layer in old]
    notes.append(Note(f"{_DONE}V1LayerParameter", place))
    del net.layers[:]
    net.layer.extend(layer.message for layer in layers)
    put(layers, origins, (*where, "layer"))
    return notes
