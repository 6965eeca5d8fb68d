"""Reads fields that Caffe has replaced as the ones that replaced them, as Caffe does when it opens a file.

Each function changes a message and its origins in place and returns notes: sentences for the log.
"""

from __future__ import annotations

from bpt.errors import PrototxtError
from bpt.origin import FieldPath, Origin, locate
from bpt.proto import bpt_pb2 as pb

_TYPES = {
    pb.SolverParameter.SGD: "SGD",
    pb.SolverParameter.NESTEROV: "Nesterov",
    pb.SolverParameter.ADAGRAD: "AdaGrad",
    pb.SolverParameter.RMSPROP: "RMSProp",
    pb.SolverParameter.ADADELTA: "AdaDelta",
    pb.SolverParameter.ADAM: "Adam",
}
_DIMENSIONS = 4  # that input_dim gives for each input


def upgrade_solver(param: pb.SolverParameter, origins: dict[FieldPath, Origin], path: str) -> list[str]:
    """Turns the old enum ``solver_type`` into ``type`` and upgrades the nets written inside the solver.

    Raises PrototxtError if both are set, and as :func:`upgrade_net` does.
    """
    notes = []
    if param.HasField("solver_type"):
        old = locate(origins, ("solver_type",), path)
        if param.HasField("type"):
            new = locate(origins, ("type",), path)
            raise PrototxtError(f'"solver_type" is the old form of "type", given at {new}; keep one of them', old)
        param.type = _TYPES[param.solver_type]
        param.ClearField("solver_type")
        origins[("type",)] = origins.pop(("solver_type",), old)
        notes.append(f'{old}: the old field "solver_type" is read as type: "{param.type}"')
    for field in ("net_param", "train_net_param"):
        if param.HasField(field):
            notes += upgrade_net(getattr(param, field), origins, path, (field,))
    for index, net in enumerate(param.test_net_param):
        notes += upgrade_net(net, origins, path, ("test_net_param", index))
    return notes


def upgrade_net(net: pb.NetParameter, origins: dict[FieldPath, Origin], path: str, where: FieldPath = ()) -> list[str]:
    """Turns the old fields ``input``, ``input_shape`` and ``input_dim`` into a first layer called "input".

    ``where`` is the path of ``net`` in ``origins``. Raises PrototxtError if the net uses the old field
    ``layers`` or if the inputs and their dimensions do not match.
    """
    if net.layers:
        raise PrototxtError(
            'uses the old "layers" format (V1); upgrading it is not supported yet',
            locate(origins, (*where, "layers", 0), path),
        )
    if not (net.input or net.input_shape or net.input_dim):
        return []
    place = locate(origins, (*where, "input" if net.input else "input_dim"), path)
    layer = pb.LayerParameter(name="input", type="Input", top=net.input)
    layer.input_param.shape.extend(_input_shapes(net, place))
    layers = [layer, *net.layer]
    del net.layer[:]
    net.layer.extend(layers)
    for field in ("input", "input_shape", "input_dim"):
        net.ClearField(field)
    _shift_layers(origins, where, place)
    return [f'{place}: the old field "input" is read as a layer of type Input']


def _input_shapes(net: pb.NetParameter, place: Origin) -> list[pb.BlobShape]:
    """The shape of each input; Caffe takes ``input_shape`` if both forms are given."""
    count = len(net.input)
    if net.input_shape:
        if len(net.input_shape) != count:
            raise PrototxtError(f'{count} "input" need as many "input_shape", not {len(net.input_shape)}', place)
        return list(net.input_shape)
    wanted = _DIMENSIONS * count
    if len(net.input_dim) != wanted:
        raise PrototxtError(f'{count} "input" need {wanted} "input_dim", not {len(net.input_dim)}', place)
    starts = range(0, len(net.input_dim), _DIMENSIONS)
    return [pb.BlobShape(dim=net.input_dim[start : start + _DIMENSIONS]) for start in starts]


def _shift_layers(origins: dict[FieldPath, Origin], where: FieldPath, place: Origin) -> None:
    """Makes room for a new first layer, which stands at ``place``."""
    prefix = (*where, "layer")
    at = len(prefix)
    moved: dict[FieldPath, Origin] = {prefix: place, (*prefix, 0): place}
    for key in [key for key in origins if key[:at] == prefix]:
        origin = origins.pop(key)
        if len(key) > at:
            new_key = (*prefix, int(key[at]) + 1, *key[at + 1 :])
            moved[new_key] = origin
    origins.update(moved)
