"""Converts a file of weights, reads back what was written, and says that it is equal."""

from __future__ import annotations

import numpy as np

from bpt.convert.layer_arrays import Weights, check_target, read_weights, write_weights
from bpt.errors import RunError
from bpt.proto.atomic import check_place


def convert(source: str, target: str, raw: str = "") -> list[str]:
    """Write the weights at ``source`` to ``target``; what there is to say about it.

    Args:
        raw: see write_weights.

    Raises:
        UserError: a file that cannot be read, or a format that there is not.
        WriteError: the target could not be written.
        RunError: what was read back is not what was to be written.
    """
    check_target(target, raw)
    check_place(target)
    weights = read_weights(source)
    write_weights(weights, target, raw)
    numbers, rounded = _compare(weights, read_weights(target), target, half=raw == "FLOAT16")
    layers = [layer for layer in weights.layers if layer.blobs]
    blobs = sum(len(layer.blobs) for layer in layers)
    rounding = f"equal but for rounding to FLOAT16, by {rounded:.2g} of a blob's largest at most"
    return [
        *(f"{source}: {note}" for note in weights.notes),
        f"{target}: {len(layers)} layers with {blobs} blobs, {numbers:,} numbers; read back: "
        f"{rounding if rounded else 'all equal'}",
    ]


def _compare(written: Weights, read: Weights, path: str, half: bool) -> tuple[int, float]:
    """How many numbers there are, and the largest rounding, by the largest number of its blob."""
    wanted = {layer.name: layer.blobs for layer in written.layers if layer.blobs}
    found = {layer.name: layer.blobs for layer in read.layers if layer.blobs}
    if list(map(len, wanted.values())) != [len(found.get(name, ())) for name in wanted] or len(wanted) != len(found):
        raise RunError(f"{path}: what was read back has other layers than were written")
    numbers, largest = 0, 0.0
    for name, blobs in wanted.items():
        for index, (values, back) in enumerate(zip(blobs, found[name], strict=True)):
            expected = values.astype(np.float16).astype(np.float32) if half else values
            if not np.array_equal(expected, back, equal_nan=True):
                raise RunError(f'{path}: blob {index} of layer "{name}", read back, is not what was written')
            numbers += values.size
            finite = np.isfinite(values)
            scale = float(np.abs(values[finite]).max(initial=0))
            if half and scale:
                largest = max(largest, float(np.abs(values[finite] - back[finite]).max(initial=0)) / scale)
    return numbers, largest
