"""Convert a file of weights, and compare the written numbers and layers with those that were read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bpt.apps.convert.layer_arrays import LayerArrays, WeightsFile, check_target, read_weights, write_weights
from bpt.base.atomic import atomic_path, check_place
from bpt.base.errors import BptError, FileError, RunError, UsageError, WriteError
from bpt.base.formats import SAFETENSORS
from bpt.base.user_files import format_of
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_content
from bpt.config.proto.blobs import FloatArray, blob_to_array
from bpt.config.proto.bvlc_check import aligned, check_net, plain_net
from bpt.config.proto.dialect_reading import Dialect
from bpt.train.state.preprocessing import carry_preprocessing
from bpt.train.state.weights import kind_of_file


def convert(source: str, target: str, raw: str = "", dialect: Dialect | None = None) -> list[str]:
    """Write the weights at ``source`` to ``target``, and return lines that report on the conversion.

    Args:
        source: the file to read.
        target: the file to write; its suffix chooses the format.
        raw: how numbers are stored; see write_weights.
        dialect: the Caffe that wrote ``source``; ``None``: find out from the file.

    Raises:
        UserError: a file cannot be read, or has an unknown format.
        WriteError: the target, or the record of its preprocessing, could not be written.
        RunError: the numbers that were read back differ from the source's; the target is not written.
    """
    check_target(target, raw)
    check_place(target)
    content = _caffemodel(source)
    if dialect is not None and content is None:
        raise UsageError(
            f"--dialect {dialect.name}: {source} is no caffemodel; in other formats, every Caffe numbers fields alike"
        )
    weights = read_weights(source, dialect)
    return [
        *(f"{source}: {note}" for note in weights.notes),
        *write_compared(weights, target, raw, content),
        *filter(None, [carry_preprocessing(source, target)]),
    ]


def write_compared(weights: WeightsFile, target: str, raw: str = "", source: bytes | None = None) -> list[str]:
    """Write ``weights`` to ``target``, read them back, and return lines that report on the comparison.

    Args:
        weights: the weights.
        target: the file to write; its suffix chooses the format.
        raw: how numbers are stored; see write_weights.
        source: the caffemodel that the weights were read from, to compare with it; ``None``: there is none.

    Raises:
        WriteError: the target could not be written.
        RunError: the numbers that were read back differ; the target is not written.
    """
    half = raw == "FLOAT16"
    with atomic_path(target) as temporary:  # a wrong file is worse than none, so it is compared before it has its name
        try:
            write_weights(weights, os.fspath(temporary), raw)
            numbers, rounded = _compare(weights, read_weights(os.fspath(temporary), Dialect.BPT), target, half)
            if source is not None:
                _compare_with_bytes(weights, source, temporary)
        except (FileError, WriteError) as error:
            raise error.about(target) from None
        except UsageError as error:
            raise UsageError(str(error).replace(os.fspath(temporary), target)) from None
        except BptError as error:
            raise RunError(f"{target}: is not written: {error}") from None
    kept = ", ".join(f'"{layer.name}"' for layer in weights.layers if half and not all(layer.halves))
    layers = [layer for layer in weights.layers if layer.blobs]
    blobs = sum(len(layer.blobs) for layer in layers)
    rounding = f"equal except for rounding to FLOAT16, by at most {rounded:.2g} of a blob's largest number"
    return [
        *([f"{target}: blobs too large or too small for FLOAT16 stay in FLOAT, in layers {kept}"] if kept else []),
        f"{target}: {len(layers)} layers with {blobs} blobs, {numbers:,} numbers; read back: "
        f"{rounding if rounded else 'all equal'}",
    ]


def _compare(written: WeightsFile, read: WeightsFile, path: str, half: bool) -> tuple[int, float]:
    """Return the count of numbers, and the largest rounding error relative to the largest number of its blob."""
    pairs = _pairs(written, read, by_place=path.endswith(".caffemodel"))
    numbers, largest = 0, 0.0
    for layer, found in pairs:
        name, blobs, fits = layer.name, layer.blobs, layer.halves if half else [False] * len(layer.blobs)
        for index, (values, back) in enumerate(zip(blobs, found, strict=True)):
            expected = values.astype(np.float16).astype(np.float32) if fits[index] else values
            if not np.array_equal(expected, back, equal_nan=True):
                raise RunError(f'blob {index} of layer "{name}", read back, is not what was written')
            numbers += values.size
            finite = np.isfinite(values)
            scale = float(np.abs(values[finite]).max(initial=0))
            if half and scale:
                largest = max(largest, float(np.abs(values[finite] - back[finite]).max(initial=0)) / scale)
    return numbers, largest


def _pairs(written: WeightsFile, read: WeightsFile, by_place: bool) -> list[tuple[LayerArrays, tuple[FloatArray, ...]]]:
    """Return each layer with blobs that was written, and its blobs as they were read back.

    Args:
        written: the layers that were written.
        read: the layers that were read back.
        by_place: match layers by their order; otherwise by their names, which are unique.
    """
    one, other = ([layer for layer in each.layers if layer.blobs] for each in (written, read))
    if not by_place:
        one, other = (sorted(each, key=lambda layer: layer.name) for each in (one, other))
    if [(layer.name, len(layer.blobs)) for layer in one] != [(layer.name, len(layer.blobs)) for layer in other]:
        raise RunError("what was read back has other layers than were written")
    return [(layer, found.blobs) for layer, found in zip(one, other, strict=True)]


def _caffemodel(path: str) -> bytes | None:
    """Return the content of the file at ``path``; ``None`` if it is no caffemodel."""
    if path.endswith(".safetensors") or format_of(path) == SAFETENSORS or kind_of_file(path) == "hdf5":
        return None
    return read_content(path, pb.NetParameter)


def _compare_with_bytes(weights: WeightsFile, source: bytes, target: Path) -> None:
    """Compare the weights and the target with the bytes of the ``source``, which is read by BVLC's schema alone."""
    net = pb.NetParameter(layer=[layer.text for layer in weights.layers])
    plain = plain_net(source)
    for index, place in aligned(plain, net, weights.changed):
        layer = plain.layer[index]
        for number, blob in enumerate(layer.blobs):
            if blob.data or blob.double_data:
                values = blob_to_array(blob)
                if not np.array_equal(values.ravel(), weights.layers[place].blobs[number].ravel(), equal_nan=True):
                    raise RunError(f'blob {number} of layer "{layer.name}" is not what the source has')
    if target.name.endswith(".caffemodel"):
        check_net(source, read_content(target, pb.NetParameter), weights.changed, without=("blobs",))
