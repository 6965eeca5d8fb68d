"""A net as a program of tensor operations, by ``torch.export``, and as an ONNX model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from bpt.errors import UserError
from bpt.export import onnx_detection, onnx_regions
from bpt.export.random_inputs import RandomInputs

OPSET = 18
"""Of ONNX's standard operators, if none is asked for: what runtimes have had since 2023."""
OPSETS = range(18, 24)  # that torch's exporter writes
_ONE_FILE = 3 << 29  # bytes of parameters; a message of protobuf, which an ONNX file is, holds less than 2 GiB


@dataclass(frozen=True)
class Program:
    """A net as torch has written it down.

    Attributes:
        inputs, outputs: their names, those of the net's blobs.
        fixed: why it takes batches of one size only; "": it takes any number of samples.
    """

    exported: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed: str = ""


def program_of(module: nn.Module, inputs: RandomInputs, names: tuple[Sequence[str], Sequence[str]]) -> Program:
    """The program of a module, with the number of samples left open where that can be.

    Args:
        inputs: what it is called with.
        names: of its inputs and its outputs.

    Raises:
        UserError: a layer of it cannot be written down.
    """
    given, made = map(tuple, names)
    with _without_torchs_words():
        try:
            exported = torch.export.export(module, inputs.batch(2), dynamic_shapes=_open_batches(inputs))
            return Program(exported, given, made)
        except Exception as error:  # tracers raise errors of all kinds
            fixed = _first_line(error)
        try:
            return Program(torch.export.export(module, inputs.batch(1)), given, made, fixed)
        except Exception as error:
            raise UserError(f"the net cannot be exported: {_first_line(error)}") from error


def _open_batches(inputs: RandomInputs) -> tuple[tuple[dict[int, object], ...]]:
    """Axis 0 of each input may be any multiple of what the text says."""
    batch = Dim("batch", min=1)
    return (tuple({0: batch if shape[0] == 1 else shape[0] * batch} if shape else {} for shape in inputs.shapes),)


def write_pt2(program: Program, path: Path) -> None:
    """Write the program as torch reads it (``torch.export.load``)."""
    with _without_torchs_words():
        torch.export.save(program.exported, path)


def write_onnx(program: Program, path: Path, opset: int = OPSET) -> None:
    """Write the program as an ONNX model of standard operators; large parameters into a file beside it.

    Raises:
        UserError: packages are missing, or there is no standard operator for something that the net does.
    """
    try:
        import onnx  # noqa: F401, PLC0415  an extra, as the next one
        import onnxscript  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError(f"ONNX needs the package {error.name}: pip install 'bpt[onnx]'") from None
    values: list[Tensor] = list(program.exported.state_dict.values())
    size = sum(value.numel() * value.element_size() for value in values)
    with _without_torchs_words():
        try:
            torch.onnx.export(
                program.exported,
                (),
                path,
                dynamo=True,
                input_names=list(program.inputs),
                output_names=list(program.outputs),
                opset_version=opset,
                external_data=size > _ONE_FILE,
                custom_translation_table={**onnx_detection.translations(), **onnx_regions.translations()},
                verbose=False,
            )
        except Exception as error:
            raise UserError(f"the net cannot be written as ONNX: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    """What an error says first, and of what kind it is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _without_torchs_words() -> Iterator[None]:
    """Leave out what torch's exporters warn of themselves, and of operators of torchvision that are not there."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
