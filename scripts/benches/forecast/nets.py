"""The solvers of ``scripts/bench forecast``: networks of ``prototxt/`` on images that are there at once."""

from __future__ import annotations

from pathlib import Path

from bpt.config.proto.text import to_text
from scripts.benches.harness.nets import Images, fed_net, solver_param

RATE = 1e-9  # so low that weights stay what they are


def write_solver(net: str, images: Images, folder: Path) -> Path:
    """A solver that trains ``net`` and neither tests nor writes anything, in the layout that most nets get."""
    fillers = ({"type": "constant", "value": value} for value in (1, 0))
    param = solver_param(fed_net(net, "DummyData", images, *fillers), RATE, solver_mode="CPU", engine="CHANNELS_LAST")
    path = folder / f"{net}_{images.size}_{images.batch}.prototxt"
    path.write_text(to_text(param))
    return path
