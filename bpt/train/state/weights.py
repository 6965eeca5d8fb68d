"""Writes and reads the weights of a net, in files of either format."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.base.errors import FileError
from bpt.config.proto.binary_files import FileKind, sniff
from bpt.config.proto.sources import resolve_path
from bpt.engine.optim.weight_slices import Elements
from bpt.graph.layer_graph import LayerNode
from bpt.graph.layer_spec import Shape
from bpt.graph.part import BlobSlice, Part
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.state import caffe_binary, hdf5
from bpt.train.state.blob_gathering import Diffs, blobs_of, layers_of, write_together
from bpt.train.state.missing_weights import WeightCoverage
from bpt.train.state.stored import NO_WEIGHTS, StoredBlob, StoredLayers, shape_string

LOG = logging.getLogger("bpt")

_REMEDY = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."


def save_weights(
    net: Net,
    path: str,
    diffs: Diffs | None = None,
    comm: Communicator | None = None,
    parts: Sequence[Part] | None = None,
    as_hdf5: bool = False,
) -> None:
    """Write all parameters of ``net`` in Caffe's format: HDF5 if ``path`` ends in ``.h5``, else binary.

    This is a collective call: rank 0 writes, and the others send their parts. For HDF5, rank 0 never holds more than a
    piece of these; the binary format needs memory for all blobs at once.

    Args:
        diffs: diffs to write as well, one for each parameter on this rank, in the order of ``net.local_params``.
        comm: the ranks that hold the net; by default this rank has all of it.
        parts: the part of the net on each rank of ``comm``.
        as_hdf5: whether to write HDF5 for any suffix of ``path``.

    Raises:
        WriteError: the file could not be written; the previous file is intact. All ranks raise it.
        FileError: HDF5 needs the package h5py, which is missing.
    """
    comm = comm or SerialCommunicator()
    layers = layers_of(net, diffs, comm, parts or (net.part,))
    write = hdf5.write_weights if as_hdf5 or path.endswith(".h5") else caffe_binary.write_weights
    write_together(comm, blobs_of(layers), lambda: write(net.graph.name, layers, path))


def weight_files(texts: Iterable[str], written_in: str = "") -> list[str]:
    """Return the files that ``weights`` names; as in Caffe's tools, commas separate several files in one text.

    Args:
        written_in: the solver's file with the text; paths that do not exist from the current folder start beside it.
    """
    names = (name.strip() for text in texts for name in text.split(","))
    return [resolve_path(name, written_in) for name in names if name]


def load_weights(net: Net, path: str) -> set[str]:
    """Load the parameters of ``net`` from the layers of the same name in the file at ``path``, to train them.

    The content shows which of both formats the file has. Layers of the file that the net does not have are ignored, and
    layers of the net that the file does not have keep their values; both are logged. Each rank reads the file and takes
    its part of the net; of an HDF5 file it reads only this part.

    Returns:
        The names of the file's layers.

    Raises:
        FileError: this is not a file of weights, it is damaged, or a layer in it has other shapes or another number of
            blobs than the net's; in the last case nothing has been loaded.
    """
    covered = load_to_run(net, path, WeightCoverage(net.graph))
    for node in covered.missing():
        LOG.info("Layer %s is not in %s; it keeps its parameters", node.name, path)
    return covered.names


def load_to_run(
    net: Net,
    path: str,
    coverage: WeightCoverage,
    before_copy: Callable[[WeightCoverage], object] = lambda covered: None,
    ignored: int = logging.INFO,
) -> WeightCoverage:
    """Load weights as load_weights does, but let the caller report missing layers after the last file.

    Args:
        coverage: the coverage by the previous files.
        before_copy: function to call with the new coverage before anything is loaded; it may raise an error.
        ignored: the log level of messages about the file's layers with weights that the net does not have.

    Returns:
        The coverage by the previous files and this one.

    Raises:
        FileError: as in load_weights.
    """
    with open_weights(path) as stored:
        copies = match_layers(net, stored, path, ignored)
        covered = coverage.with_file(path, stored)
        before_copy(covered)
        copy_blobs(copies)
        return covered


@contextlib.contextmanager
def open_weights(path: str) -> Iterator[StoredLayers]:
    """Provide the layers in a file of weights of either format, which can be read in the block."""
    kind = kind_of_file(path)
    if kind == "solverstate":
        raise FileError(path, NO_WEIGHTS.format(suffix=""))
    if kind == "hdf5":
        with hdf5.open_weights(path) as layers:
            yield layers
    else:
        yield caffe_binary.read_weights(path)


def kind_of_file(path: str) -> FileKind:
    """Return the kind of the content of the file at ``path``; "unknown" if it cannot be read."""
    try:
        return sniff(path)
    except (OSError, ValueError):  # a name with a null character is a ValueError
        return "unknown"


def check_weights(files: Iterable[str]) -> None:
    """Raise a FileError if one of ``files`` is not a file of weights, is missing, or is damaged."""
    for path in files:
        with open_weights(path):
            pass


def check_kind_of_weights(path: str) -> None:
    """Raise a FileError if the file at ``path`` is no file of weights by its beginning; this does not read it whole."""
    if kind_of_file(path) != "caffemodel":
        check_weights((path,))


@dataclass(frozen=True)
class Copy:
    """A copy to make: a stored blob with the shape ``shape``, or its slice ``part``, to ``target``.

    ``elements`` are those of the values that ``target`` has as one row; ``None``: it has all.
    """

    target: Tensor
    blob: StoredBlob
    shape: Shape
    part: BlobSlice | None
    elements: Elements | None = None


def match_layers(net: Net, stored: StoredLayers, path: str, ignored: int = logging.INFO) -> list[Copy]:
    """Check all blobs, and return the copies to the tensors of ``net`` (Caffe: ``Net::CopyTrainedLayersFrom``)."""
    for name, blobs in stored.items():
        if name not in net.graph.index_of:
            LOG.log(ignored if blobs else logging.INFO, "Ignoring source layer %s", name)
    copies = []
    matched = False
    for node in net.graph.nodes:
        if node.name in stored:
            copies += _match_blobs(net, node, stored[node.name], path)
            matched |= bool(stored[node.name] and node.params)
    if not matched and any(stored.values()):
        LOG.warning("%s: no layer with weights has the name of one in the net; nothing was loaded", path)
    return copies


def _match_blobs(net: Net, node: LayerNode, blobs: dict[int, StoredBlob], path: str) -> list[Copy]:
    params = [net.graph.params[index] for index in node.params]
    # HDF5 files leave out blobs that belong to another layer.
    if any(p.blob not in blobs and not p.shared for p in params) or any(index >= len(params) for index in blobs):
        raise FileError(
            path,
            f"Incompatible number of blobs for layer '{node.name}': {len(blobs)} in the file, {len(params)} in the "
            f"net. {_REMEDY}",
        )
    for param in params:
        if param.blob in blobs and not blobs[param.blob].fits(param.shape):
            raise FileError(
                path,
                f"Cannot copy param {param.blob} weights from layer '{node.name}'; shape mismatch.  Source param "
                f"shape is {shape_string(blobs[param.blob].shape)}; target param shape is "
                f"{shape_string(param.shape)}. {_REMEDY}",
            )
    layer = net.layer(node)
    return [
        Copy(layer.blob(param.blob), blobs[param.blob], param.shape, net.part.slice_of(param))
        for param in params
        if param.blob in blobs and net.holds(param)
    ]


@torch.no_grad()
def copy_blobs(copies: Iterable[Copy]) -> None:
    """Make the copies."""
    for copy in copies:
        values = torch.from_numpy(copy.blob.read(copy.shape, copy.part))
        copy.target.copy_(values if copy.elements is None else values.reshape(-1)[slice(*copy.elements)])
