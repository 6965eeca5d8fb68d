"""Compare an exported file with its net, on random inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bpt.apps.export.random_inputs import RandomInputs
from bpt.base.errors import RunError, UserError, first_line_of

TOLERANCE = 1e-4
"""The largest difference that passes, relative to the largest number of an output, or to 1 if that is larger."""

AS_ROUNDING = 4
"""A difference also passes if it is at most this multiple of the net's own rounding error.

A layer such as a max pooling chooses between nearly equal numbers by chance, which changes whole regions of an output.
"""

Outputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Runner:
    """A runtime with a loaded file.

    Attributes:
        run: runs the file on a batch, and returns the outputs.
        name: the runtime's name and version.
    """

    run: Callable[..., Outputs]
    name: str


@dataclass(frozen=True)
class OutputDifference:
    """The difference between an output of the file and the net's, on one batch.

    Attributes:
        output: the output's name.
        shape: its shape.
        largest: the largest difference.
        among: the largest number of the net's output.
        rounding: the largest difference between the net in single and in double precision; 0: not computed.
    """

    output: str
    shape: tuple[int, ...]
    largest: float
    among: float
    rounding: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether rounding explains the difference."""
        return self.is_small or self.largest <= AS_ROUNDING * self.rounding

    @property
    def is_small(self) -> bool:
        """Whether the difference is within TOLERANCE."""
        return self.largest <= TOLERANCE * max(1.0, self.among)

    def __str__(self) -> str:
        text = f"{self.output} {self.shape}: differs by {self.largest:.2g} at most, numbers up to {self.among:.4g}"
        return f"{text}; the net in double precision by {self.rounding:.2g}" if self.rounding else text


def compare(module: nn.Module, runner: Runner, inputs: RandomInputs, times: Sequence[int]) -> list[OutputDifference]:
    """Return the differences of all outputs, on several batches.

    If a difference is not small, the function also computes the rounding error of the net itself; see AS_ROUNDING.

    Args:
        module: the net.
        runner: runs the file.
        inputs: makes the batches.
        times: the size of each batch, as a multiple of the text's batch.

    Raises:
        UserError: the net itself computes numbers that are not finite.
        RunError: the file cannot be run, or gives outputs of other shapes.
    """
    names: Sequence[str] = module.outputs  # type: ignore[assignment]  # of a Module of load_module
    found: list[OutputDifference] = []
    for number in times:
        batch, here = inputs.batch(number), []
        with torch.no_grad():
            expected = as_tuple(module(*batch))
        try:
            got = runner.run(*batch)
        except Exception as error:  # a runtime may raise any kind of error
            raise RunError(f"{runner.name} cannot run what was written: {first_line_of(error)}") from error
        for name, one, other in zip(names, got, expected, strict=True):
            if not other.isfinite().all():
                raise UserError(
                    f'for random inputs the net itself computes numbers in "{name}" that are not finite, so nothing '
                    "can be compared; give the weights of a trained net (--weights)"
                )
            if one.shape != other.shape:
                raise RunError(
                    f'{runner.name} makes "{name}" of shape {tuple(one.shape)}, the net {tuple(other.shape)}'
                )
            gap = (one.double() - other.double()).abs()
            largest = float(gap.nan_to_num(nan=math.inf).max()) if gap.numel() else 0.0
            among = float(other.abs().max()) if other.numel() else 0.0
            here.append(OutputDifference(name, tuple(other.shape), largest, among))
        if not all(each.is_small for each in here):
            own = rounding(module, batch, expected)
            here = [replace(each, rounding=own_gap) for each, own_gap in zip(here, own, strict=True)]
        found += here
    return found


def rounding(module: nn.Module, batch: Sequence[Tensor], outputs: Outputs) -> list[float]:
    """Return the largest difference of each of the ``outputs`` for ``batch`` from the net's in double precision.

    The differences are 0 if the net cannot run in double precision.
    """
    try:
        with torch.no_grad():
            wide = (each.double() if each.is_floating_point() else each for each in batch)
            exact = as_tuple(deepcopy(module).double()(*wide))
    except Exception:  # a layer may support single precision only, and a Python layer may raise any kind of error
        return [0.0] * len(outputs)
    gaps = ((one - other).abs() for one, other in zip(exact, outputs, strict=True))
    return [float(gap.nan_to_num(nan=0.0).max()) if gap.numel() else 0.0 for gap in gaps]


def as_tuple(result: object) -> Outputs:
    """Return the result of a module, one tensor or several, as a tuple."""
    return (result,) if isinstance(result, Tensor) else tuple(result)  # type: ignore[arg-type]


def runner_of_pt2(path: Path) -> Runner:
    """Return a runner of a ``.pt2`` file, by torch."""
    program: Any = torch.export.load(path).module()

    def run(*batch: Tensor) -> Outputs:
        with torch.no_grad():
            return as_tuple(program(*batch))

    return Runner(run, f"torch {torch.__version__}")


def runner_of_onnx(path: Path, names: Sequence[str]) -> Runner:
    """Return a runner of an ONNX model, by onnxruntime or, if that is not installed, by onnx's slow evaluator."""
    session: Any
    try:
        import onnxruntime  # noqa: PLC0415  an extra

        onnxruntime.set_default_logger_severity(3)
        session, name = onnxruntime.InferenceSession(path), f"onnxruntime {onnxruntime.__version__}"
    except ImportError:
        import onnx.reference  # noqa: PLC0415  an extra

        session, name = onnx.reference.ReferenceEvaluator(str(path)), f"onnx {onnx.__version__}, its reference"

    def run(*batch: Tensor) -> Outputs:
        feed = {key: value.numpy() for key, value in zip(names, batch, strict=True)}
        return tuple(torch.from_numpy(array) for array in session.run(None, feed))

    return Runner(run, name)
