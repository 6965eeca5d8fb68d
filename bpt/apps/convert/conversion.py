"""Converts a file of weights, and compares what was written with what was read: numbers, and what layers say."""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from bpt.apps.convert.layer_arrays import WeightsFile, check_target, read_weights, write_weights
from bpt.base.atomic import check_place
from bpt.base.errors import PrototxtError, RunError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_content
from bpt.config.proto.blobs import fits_half
from bpt.config.proto.dialect_settings import Dialect
from bpt.config.proto.upgrade import upgrade_net
from bpt.train.state.weights import kind_of_file


def convert(source: str, target: str, raw: str = "", dialect: Dialect | None = None) -> list[str]:
    """Write the weights at ``source`` to ``target``; what there is to say about it.

    Args:
        raw: see write_weights.
        dialect: the Caffe that wrote ``source``; ``None``: the file must tell.

    Raises:
        UserError: a file that cannot be read, or a format that there is not.
        WriteError: the target could not be written.
        RunError: what was read back is not what was to be written.
    """
    check_target(target, raw)
    check_place(target)
    weights = read_weights(source, dialect)
    write_weights(weights, target, raw)
    written = read_weights(target, Dialect.BVLC)
    half = raw == "FLOAT16"
    numbers, rounded = _compare(weights, written, target, half)
    if target.endswith(".caffemodel"):
        _compare_texts(weights, written, source, target)
    kept = [f'"{layer.name}"' for layer in weights.layers if half and not all(map(fits_half, layer.blobs))]
    layers = [layer for layer in weights.layers if layer.blobs]
    blobs = sum(len(layer.blobs) for layer in layers)
    rounding = f"equal but for rounding to FLOAT16, by {rounded:.2g} of a blob's largest at most"
    return [
        *(f"{source}: {note}" for note in weights.notes),
        *([f"{target}: numbers beyond FLOAT16 stay in FLOAT, in layers {', '.join(kept)}"] if kept else []),
        f"{target}: {len(layers)} layers with {blobs} blobs, {numbers:,} numbers; read back: "
        f"{rounding if rounded else 'all equal'}",
    ]


def _compare(written: WeightsFile, read: WeightsFile, path: str, half: bool) -> tuple[int, float]:
    """Return how many numbers there are, and the largest rounding, by the largest number of its blob."""
    wanted = {layer.name: layer.blobs for layer in written.layers if layer.blobs}
    found = {layer.name: layer.blobs for layer in read.layers if layer.blobs}
    if list(map(len, wanted.values())) != [len(found.get(name, ())) for name in wanted] or len(wanted) != len(found):
        raise RunError(f"{path}: what was read back has other layers than were written")
    numbers, largest = 0, 0.0
    for name, blobs in wanted.items():
        for index, (values, back) in enumerate(zip(blobs, found[name], strict=True)):
            expected = values.astype(np.float16).astype(np.float32) if half and fits_half(values) else values
            if not np.array_equal(expected, back, equal_nan=True):
                raise RunError(f'{path}: blob {index} of layer "{name}", read back, is not what was written')
            numbers += values.size
            finite = np.isfinite(values)
            scale = float(np.abs(values[finite]).max(initial=0))
            if half and scale:
                largest = max(largest, float(np.abs(values[finite] - back[finite]).max(initial=0)) / scale)
    return numbers, largest


def _compare_texts(weights: WeightsFile, written: WeightsFile, source: str, target: str) -> None:
    """Compare what layers say, blobs aside: with what was read, and with the bytes of ``source`` by BVLC's numbers.

    The latter knows nothing of forks. So it holds what a fork's numbers were taken for against the plain reading.
    """
    wanted, found = ([layer.text for layer in each.layers] for each in (weights, written))
    if wanted != found:
        name = next((a.name for a, b in zip(wanted, found, strict=False) if a != b), "")
        raise RunError(f'{target}: layer "{name}", read back, does not say what it said in {source}')
    if kind_of_file(source) == "hdf5" or source.endswith(".safetensors"):
        return
    try:
        plain = pb.NetParameter.FromString(read_content(source, pb.NetParameter))
        upgrade_net(plain, {}, None)
    except (DecodeError, PrototxtError):  # a fork's fields are no fields of the schema
        return
    by_name = {layer.name: layer for layer in plain.layer}
    for layer in written.layers:
        text = by_name.get(layer.name)
        for name in _OF_BVLC if text and layer.name not in weights.changed else ():
            if getattr(layer.text, name) != getattr(text, name):
                raise RunError(f'{target}: {name} of layer "{layer.name}" is not what {source} says')


_OF_BVLC = ("type", "bottom", "top", "pooling_param", "convolution_param", "inner_product_param", "loss_param")
"""Fields whose numbers inside are BVLC's in bpt's schema, too."""
