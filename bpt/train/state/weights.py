"""Weights of a net from and to a file of either format."""

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
    """Write all parameters of ``net``, so that Caffe reads them: HDF5 if ``path`` ends in ``.h5``, else binary.

    A collective call: rank 0 writes, and the others send it what it does not hold. In HDF5 it never has more than
    a piece of that; the binary format needs memory for all blobs at once.

    Args:
        diffs: also write these, one for each parameter that this rank holds, in the order of ``net.local_params``.
        comm: the ranks that hold the net; by default this one has all of it.
        parts: what each rank of ``comm`` holds.
        as_hdf5: HDF5, whatever ``path`` ends in.

    Raises:
        WriteError: the file could not be written; what stood there before is intact. All ranks raise it.
        FileError: HDF5 without the package h5py.
    """
    comm = comm or SerialCommunicator()
    layers = layers_of(net, diffs, comm, parts or (net.part,))
    write = hdf5.write_weights if as_hdf5 or path.endswith(".h5") else caffe_binary.write_weights
    write_together(comm, blobs_of(layers), lambda: write(net.graph.name, layers, path))


def weight_files(texts: Iterable[str], written_in: str = "") -> list[str]:
    """Return the files that ``weights`` names: several in one text are separated by commas (as in Caffe's tools).

    Args:
        written_in: the solver that says so; what is not found from the current folder is looked for beside it.
    """
    names = (name.strip() for text in texts for name in text.split(","))
    return [resolve_path(name, written_in) for name in names if name]


def load_weights(net: Net, path: str) -> set[str]:
    """Load the parameters of ``net`` from the layers of the same name in the file at ``path``, to train them.

    Both formats are read, told apart by their content. Layers of the file that the net does not have are ignored,
    layers of the net that the file does not have keep their values; both are logged. Each rank reads the file and
    takes what it holds of the net; of HDF5 it reads nothing else.

    Returns:
        The names of the file's layers.

    Raises:
        FileError: not a file of weights or a damaged one, or a layer in it has other shapes or another number of
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
        coverage: what other files have given the net.
        before_copy: called with what is returned, before anything is loaded; what it raises passes.
        ignored: the level at which the log tells of the file's layers with weights that the net does not have.

    Returns:
        Which layers these files and this one have given the net, and what they have instead of the others.

    Raises:
        FileError: as load_weights.
    """
    with open_weights(path) as stored:
        copies = match_layers(net, stored, path, ignored)
        covered = coverage.with_file(path, stored)
        before_copy(covered)
        copy_blobs(copies)
        return covered


@contextlib.contextmanager
def open_weights(path: str) -> Iterator[StoredLayers]:
    """Return the layers in a file of weights of either format, to be read while it is open."""
    kind = kind_of_file(path)
    if kind == "solverstate":
        raise FileError(path, NO_WEIGHTS.format(suffix=""))
    if kind == "hdf5":
        with hdf5.open_weights(path) as layers:
            yield layers
    else:
        yield caffe_binary.read_weights(path)


def kind_of_file(path: str) -> FileKind:
    """Return the kind of the content of the file at ``path``.

    Unknown if it cannot be read, which reading it will explain.
    """
    try:
        return sniff(path)
    except (OSError, ValueError):  # no name of a file has a null character
        return "unknown"


def check_weights(files: Iterable[str]) -> None:
    """Raise a FileError if one of ``files`` is no file of weights, is missing, or is damaged."""
    for path in files:
        with open_weights(path):
            pass


@dataclass(frozen=True)
class Copy:
    """A copy to make: a stored blob, or its slice ``part``, of the shape ``shape``, into ``target``."""

    target: Tensor
    blob: StoredBlob
    shape: Shape
    part: BlobSlice | None


def match_layers(net: Net, stored: StoredLayers, path: str, ignored: int = logging.INFO) -> list[Copy]:
    """Return which tensors of ``net`` take which blobs (Caffe: ``Net::CopyTrainedLayersFrom``); all are checked."""
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
    """Copy the blobs' values."""
    for copy in copies:
        copy.target.copy_(torch.from_numpy(copy.blob.read(copy.shape, copy.part)))
