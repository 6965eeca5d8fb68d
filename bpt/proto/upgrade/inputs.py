"""The inputs of a net, which were fields of it, as a layer of type Input."""

from __future__ import annotations

from bpt.errors import PrototxtError
from bpt.origin import FieldPath, Origin, locate
from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade.written import Written, put, take

_FIELDS = ("input", "input_dim", "input_shape")
_DIMENSIONS = 4  # that input_dim gives for each input


def upgrade(
    net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str | None, where: FieldPath
) -> Origin | None:
    """Turns ``input``, ``input_shape`` and ``input_dim`` into a first layer called "input"; returns where they stand.

    Old files of weights (``path`` None) name inputs without their dimensions; these inputs are dropped, as in Caffe.

    Raises PrototxtError if the inputs and their dimensions do not match.
    """
    field = next(name for name in _FIELDS if getattr(net, name))
    place = None if path is None else locate(origins, (*where, field), path)
    if path is not None or net.input_dim or net.input_shape:
        layer = pb.LayerParameter(name="input", type="Input", top=net.input)
        layer.input_param.shape.extend(_shapes(net, place))
        _put_first(layer, net, origins, (*where, "layer"), place)
    for field in _FIELDS:
        net.ClearField(field)
    return place


def _put_first(
    layer: pb.LayerParameter,
    net: pb.NetParameter,
    origins: dict[FieldPath, Origin],
    where: FieldPath,
    place: Origin | None,
) -> None:
    """Puts ``layer``, which stands at ``place``, before the layers of ``net``, whose list is at ``where``."""
    first = Written(layer, {} if place is None else {(): place}, None)
    layers = [first, *take(net.layer, origins, where, None)]
    messages = [each.message for each in layers]
    del net.layer[:]
    net.layer.extend(messages)
    put(layers, origins, where)


def _shapes(net: pb.NetParameter, place: Origin | None) -> list[pb.BlobShape]:
    """The shape of each input; Caffe takes ``input_shape`` if both forms are given."""
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
    """``2 "input" need``."""
    return f'{count} "input" {"needs" if count == 1 else "need"}'
