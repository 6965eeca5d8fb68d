"""Read and write files of weights in all formats, as layers whose blobs are arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from bpt.apps.convert import safetensors_file
from bpt.base.errors import BptError, FileError, PrototxtError, UsageError, WriteError
from bpt.base.formats import SAFETENSORS
from bpt.base.user_files import format_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import write_binary
from bpt.config.proto.blobs import (
    FloatArray,
    array_to_blob,
    array_to_raw_blob,
    blob_to_array,
    is_legacy,
    which_fit_half,
)
from bpt.config.proto.dialect_reading import Dialect
from bpt.config.proto.dialects import read_net
from bpt.config.proto.fields import is_message, is_own
from bpt.config.proto.upgrade import upgrade_net
from bpt.train.state import hdf5
from bpt.train.state.weights import kind_of_file

ENDINGS = (".caffemodel", ".h5", ".safetensors")


@dataclass(frozen=True)
class LayerArrays:
    """A layer of a file of weights.

    Attributes:
        text: the layer's message in a caffemodel, without blobs; in other formats only its name.
        blobs: its parameters, in float32.
    """

    text: pb.LayerParameter
    blobs: tuple[FloatArray, ...]

    @property
    def name(self) -> str:
        return self.text.name

    @property
    def halves(self) -> list[bool]:
        """For each blob, whether it is stored in half precision if the user asks for that."""
        return which_fit_half(self.blobs, self.text.type)


@dataclass(frozen=True)
class WeightsFile:
    """The content of a file of weights.

    Attributes:
        layers: the layers.
        notes: remarks about what was converted from an older format or a fork.
        changed: (name of a layer, field of BVLC's schema) for fields that have another meaning in the fork.
        settings: the fields of a caffemodel other than its layers.
    """

    layers: tuple[LayerArrays, ...]
    notes: tuple[str, ...] = ()
    changed: frozenset[tuple[str, str]] = frozenset()
    settings: pb.NetParameter = field(default_factory=pb.NetParameter)


def read_weights(path: str, dialect: Dialect | None = None) -> WeightsFile:
    """Return the weights at ``path``: a caffemodel of any Caffe, HDF5, or safetensors, by content or name.

    Layers in the formats V0 and V1 are upgraded. Fields of forks get the numbers of bpt's schema. Blobs of old files,
    which all have four axes, get the axes of today's blobs.

    Args:
        path: the file.
        dialect: the Caffe that wrote a caffemodel; ``None``: find out from the file.

    Raises:
        FileError: the file is missing, damaged or no file of weights.
    """
    if path.endswith(".safetensors") or format_of(path) == SAFETENSORS:
        return WeightsFile(_named(safetensors_file.read_arrays(path)))
    if kind_of_file(path) == "hdf5":
        with hdf5.open_weights(path) as stored:
            layers = {
                name: tuple(blobs[index].read(blobs[index].shape) for index in sorted(blobs))
                for name, blobs in stored.items()
            }
        return WeightsFile(_named(layers))
    return _of_message(path, dialect)


def _named(layers: dict[str, tuple[FloatArray, ...]]) -> tuple[LayerArrays, ...]:
    return tuple(LayerArrays(pb.LayerParameter(name=name), blobs) for name, blobs in layers.items())


def _of_message(path: str, dialect: Dialect | None) -> WeightsFile:
    net, read, changed = read_net(path, dialect)
    try:
        notes = [*read, *(note.text for note in upgrade_net(net, {}, None))]
    except (PrototxtError, UnicodeError) as error:
        raise FileError(path, str(error)) from None
    layers = []
    for layer in net.layer:
        try:
            blobs = tuple(_todays(layer, index, blob) for index, blob in enumerate(layer.blobs))
        except BptError as error:
            raise FileError(path, f'layer "{layer.name}": {error}') from None
        del layer.blobs[:]
        layers.append(LayerArrays(layer, blobs))
    del net.layer[:]
    return WeightsFile(tuple(layers), tuple(notes), changed, net)


def _todays(layer: pb.LayerParameter, index: int, blob: pb.BlobProto) -> FloatArray:
    """Return a blob's values in today's shape, without the axes of length 1 that old files put before it."""
    values = blob_to_array(blob)
    if not is_legacy(blob) or (layer.type in ("Convolution", "Deconvolution") and index == 0):
        return values
    wanted = 2 if layer.type in ("InnerProduct", "Embed") and index == 0 else 1
    axes = values.shape
    while len(axes) > wanted and axes[0] == 1:
        axes = axes[1:]
    return values.reshape(axes)


def write_weights(weights: WeightsFile, path: str, raw: str = "") -> None:
    """Write ``weights`` in the format that the suffix of ``path`` names, completely or not at all.

    Args:
        weights: the weights.
        path: the file to write.
        raw: FLOAT or FLOAT16 in a caffemodel: store numbers as NVIDIA's Caffe does. FLOAT16 in safetensors: store them
            in half precision. Each blob has a type of its own: one with numbers outside the range of FLOAT16, such as
            the sums of a BatchNorm, stays in FLOAT. "": as Caffe stores them.

    Raises:
        UsageError: the format is unknown, or cannot store the weights in that way.
        WriteError: the file could not be written.
    """
    check_target(path, raw)
    arrays: dict[str, tuple[FloatArray, ...]] = {}
    halves: dict[str, list[bool]] = {}
    for layer in weights.layers if not path.endswith(".caffemodel") else ():
        if layer.blobs and layer.name in arrays:
            raise UsageError(
                f'{path}: two layers with weights are called "{layer.name}"; only a .caffemodel can hold both'
            )
        if layer.blobs:
            arrays[layer.name], halves[layer.name] = layer.blobs, layer.halves
    try:
        if path.endswith(".h5"):
            hdf5.write_arrays(arrays, path)
        elif path.endswith(".safetensors"):
            safetensors_file.write_arrays(arrays, path, halves if raw else {})
        else:
            write_binary(path, _message(weights, raw))
    except BptError as error:
        raise error if isinstance(error, (WriteError, FileError)) else WriteError(path, str(error)) from None


def check_target(path: str, raw: str = "") -> None:
    """Raise a UsageError if weights cannot be written to ``path`` in this way, before the work is done."""
    if not path.endswith(ENDINGS):
        raise UsageError(f"{path}: weights are written to files that end in {', '.join(ENDINGS)}")
    if raw and path.endswith(".h5"):
        raise UsageError(f"--raw {raw}: Caffe's HDF5 files cannot store numbers in this way; give a .caffemodel")
    if raw == "FLOAT" and path.endswith(".safetensors"):
        raise UsageError("--raw FLOAT is for caffemodels; safetensors hold single precision without it")
    if os.path.basename(path) in ENDINGS:
        raise UsageError(f"{path}: needs a name before its ending")


def _message(weights: WeightsFile, raw: str) -> pb.NetParameter:
    net = pb.NetParameter()
    for setting, value in weights.settings.ListFields():
        if not is_own(setting):  # a fork's settings have no effect here, and only its dialect could read them again
            if is_message(setting):
                getattr(net, setting.name).CopyFrom(value)
            else:
                setattr(net, setting.name, value)
    for layer in weights.layers:
        message = net.layer.add()
        message.CopyFrom(layer.text)
        _add(message, layer, raw)
    return net


def _add(message: pb.LayerParameter, layer: LayerArrays, raw: str) -> None:
    halves = layer.halves if raw == "FLOAT16" else [False] * len(layer.blobs)
    for values, half in zip(layer.blobs, halves, strict=True):
        try:
            message.blobs.append(
                array_to_raw_blob(values, pb.FLOAT16 if half else pb.FLOAT) if raw else array_to_blob(values)
            )
        except BptError as error:
            raise BptError(f'layer "{message.name}": {error}') from None
