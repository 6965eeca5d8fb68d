"""Names of layers as paths in an HDF5 file.

HDF5 drops empty parts of a path, and those that are ``.``: ``a//b``, ``/a/b`` and ``a/./b`` become ``a/b``, and
nothing remains of ``""`` and ``.``.
"""

from __future__ import annotations

from collections.abc import Iterable

from bpt.base.errors import FileError
from bpt.graph.layer_graph import LayerNode
from bpt.train.state.stored import StoredBlob, StoredLayers

_REMEDY = "rename the layer, or use snapshot_format: BINARYPROTO"


def check_names(nodes: Iterable[LayerNode]) -> None:
    """Raise a LayerError if a layer's weights could not be found again under its name."""
    seen: dict[str, LayerNode] = {}
    for node in nodes:
        form = _form(node.name)
        if node.params and (not form or form != node.name):
            taken = f'"{form}"' if form else "no name at all"
            raise node.spec.error(
                f"HDF5 takes its name for {taken}, so its parameters would not be found again; {_REMEDY}", "name"
            )
        first = seen.setdefault(form, node)
        if first.name != node.name and (first.params or node.params):
            raise node.spec.error(f'HDF5 takes its name for that of layer "{first.name}"; {_REMEDY}', "name")


class ByForm(StoredLayers):
    """The layers of a file by any equivalent HDF5 path, because Caffe writes names unchanged."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._asked: dict[str, str] = {}  # by form

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(_form(name))

    def __getitem__(self, name: str) -> dict[int, StoredBlob]:
        found = super().__getitem__(_form(name))
        first = self._asked.setdefault(_form(name), name)
        if found and first != name:
            raise FileError(
                self._path, f'HDF5 takes the layer names "{first}" and "{name}" for one; rename one of the layers'
            )
        return found


def _form(name: str) -> str:
    """Return the path of the group that HDF5 makes for a layer with this name."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))
