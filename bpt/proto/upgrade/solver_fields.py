"""Solvers: ``solver_type``, and the nets written inside them."""

from __future__ import annotations

from bpt.errors import PrototxtError
from bpt.origin import FieldPath, Origin, locate
from bpt.proto import bpt_pb2 as pb
from bpt.proto.upgrade.net import upgrade_net
from bpt.proto.upgrade.note import Note

_TYPES = {
    pb.SolverParameter.SGD: "SGD",
    pb.SolverParameter.NESTEROV: "Nesterov",
    pb.SolverParameter.ADAGRAD: "AdaGrad",
    pb.SolverParameter.RMSPROP: "RMSProp",
    pb.SolverParameter.ADADELTA: "AdaDelta",
    pb.SolverParameter.ADAM: "Adam",
}
_DONE = "Successfully upgraded file specified using deprecated 'solver_type' field (enum) to 'type' field (string)"


def upgrade_solver(param: pb.SolverParameter, origins: dict[FieldPath, Origin], path: str) -> list[Note]:
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
        notes.append(Note(f'{_DONE}: type: "{param.type}"', old))
    for field in ("net_param", "train_net_param"):
        if param.HasField(field):
            notes += upgrade_net(getattr(param, field), origins, path, (field,))
    for index, net in enumerate(param.test_net_param):
        notes += upgrade_net(net, origins, path, ("test_net_param", index))
    return notes
