"""Convert a net to a program of tensor operations, by ``torch.export``, and to an ONNX model."""

from __future__ import annotations

import keyword
import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from bpt.apps.export import onnx_detection, onnx_regions, onnx_sorting
from bpt.apps.export.random_inputs import RandomInputs
from bpt.base.errors import UserError
from bpt.nn.layers.base import Layer

OPSET = 18
"""The default version of ONNX's standard operators, which runtimes have had since 2023."""
OPSETS = range(18, 24)
"""The versions that torch's exporter writes."""
_ONE_FILE = 3 << 29  # bytes of parameters up to which one file has them: a protobuf message holds less than 2 GiB


@dataclass(frozen=True)
class Program:
    """A net as a program of torch.

    Attributes:
        exported: the program.
        inputs: the names of the inputs, which are those of the net's blobs.
        outputs: the names of the outputs, likewise.
        fixed: why the program takes batches of one size only; "": it takes batches of any size.
        layers: the layers by the names of their modules.
    """

    exported: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed: str = ""
    layers: Mapping[str, Layer] = field(default_factory=dict)

    @property
    def onnx_outputs(self) -> tuple[str, ...]:
        """The names of the outputs in an ONNX model.

        ONNX needs unique names. An input keeps its name, and an output of the same name gets the suffix ``_output``.
        """
        taken, names = {*self.inputs, *self.outputs}, []
        for name in self.outputs:
            if name in self.inputs:
                name += "_output"
                while name in taken:
                    name += "_"
                taken.add(name)
            names.append(name)
        return tuple(names)


def program_of(module: nn.Module, inputs: RandomInputs, names: tuple[Sequence[str], Sequence[str]]) -> Program:
    """Return the program of a module; it takes batches of any size, if the layers allow that.

    Args:
        module: the module.
        inputs: example inputs.
        names: the names of its inputs and of its outputs.

    Raises:
        UserError: a layer cannot be exported.
    """
    given, made = map(tuple, names)
    _rename_unreadable(module)
    layers = {name: child for name, child in module.named_children() if isinstance(child, Layer)}
    with _without_torchs_words():
        try:
            exported = torch.export.export(module, inputs.batch(2), dynamic_shapes=_open_batches(inputs))
            return Program(exported, given, made, layers=layers)
        except Exception as error:  # tracers raise errors of all kinds
            fixed = _first_line(error)
        try:
            return Program(torch.export.export(module, inputs.batch(1)), given, made, fixed, layers)
        except Exception as error:
            raise UserError(f"{_place(_layer_at(error))}the net cannot be exported: {_first_line(error)}") from error


def _rename_unreadable(module: nn.Module) -> None:
    """Rename children whose names torch's generated code cannot use: Python's keywords, and control characters.

    This also renames their parameters. The caller owns the module.
    """
    for name, child in list(module.named_children()):
        new = re.sub(r"[\x00-\x1f]", "_", name)
        if keyword.iskeyword(new):
            new += "_"
        if new != name:
            delattr(module, name)
            while hasattr(module, new):
                new += "_"
            module.add_module(new, child)


def _open_batches(inputs: RandomInputs) -> tuple[tuple[dict[int, object], ...]]:
    """Return the dynamic shapes: axis 0 of each input may be any multiple of the text's, the same for all inputs."""
    batch = Dim("batch", min=1)
    return (tuple({0: batch if shape[0] == 1 else shape[0] * batch} if shape else {} for shape in inputs.shapes),)


def write_pt2(program: Program, path: Path) -> None:
    """Write the program as torch reads it (``torch.export.load``)."""
    for node in program.exported.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:  # torch joins these names by "," and ";", so names must not contain them
            node.meta["nn_module_stack"] = {
                _without_separators(key): (_without_separators(path), kind) for key, (path, kind) in stack.items()
            }
    with _without_torchs_words():
        torch.export.save(program.exported, path)


def write_onnx(program: Program, path: Path, opset: int = OPSET, metadata: Mapping[str, str] | None = None) -> None:
    """Write the program as an ONNX model of standard operators. Large parameters go to a file beside it.

    Args:
        program: the program.
        path: the file.
        opset: the version of the operators.
        metadata: entries of the model's ``metadata_props``.

    Raises:
        UserError: packages are missing, or the net has an operation that ONNX's operators cannot express.
    """
    try:
        import onnx  # noqa: F401, PLC0415  an extra, as the next one
        import onnxscript  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError(f"ONNX needs the package {error.name}: pip install 'bpt[onnx]'") from None
    if not all((*program.inputs, *program.onnx_outputs)):
        raise UserError("the net has a blob without a name among its inputs and outputs; ONNX needs one: name it")
    values: list[Tensor] = list(program.exported.state_dict.values())
    size = sum(value.numel() * value.element_size() for value in values)
    with _without_torchs_words():
        try:
            made: Any = torch.onnx.export(
                program.exported,
                (),
                dynamo=True,
                input_names=list(program.inputs),
                opset_version=opset,
                custom_translation_table={
                    **onnx_detection.translations(),
                    **onnx_regions.translations(),
                    **onnx_sorting.translations(),
                },
                verbose=False,
            )
            _name_outputs(made.model, program)
            made.model.metadata_props.update(metadata or {})
            made.save(path, external_data=size > _ONE_FILE)
        except Exception as error:
            where, operator = _untranslated(error, program)
            lacks = f"ONNX has no translation of {operator}" if operator else _first_line(error)
            raise UserError(f"{_place(where)}the net cannot be written as ONNX: {lacks}") from error


def _name_outputs(model: Any, program: Program) -> None:
    """Give each output its own value and name.

    If a layer does nothing in the phase TEST, an output may be an input, another output or a constant. An Identity then
    copies it.
    """
    import onnx_ir  # noqa: PLC0415  comes with onnxscript

    graph = model.graph
    taken = {*graph.inputs, *graph.initializers.values()}
    for place, (value, name) in enumerate(zip(list(graph.outputs), program.onnx_outputs, strict=True)):
        if value in taken:
            node = onnx_ir.node("Identity", [value])
            (copy,) = node.outputs
            copy.shape, copy.type = value.shape, value.type
            graph.append(node)
            graph.outputs[place] = value = copy
        taken.add(value)
        value.name = name
    names = {value.name for value in (*graph.inputs, *graph.outputs)}
    inner = [output for node in graph for output in node.outputs if output not in set(graph.outputs)]
    for value in [*inner, *list(graph.initializers.values())]:
        if value.name in names and value not in set(graph.inputs):
            value.name = _free_name(value.name, names | {each.name for each in inner})


def _free_name(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}.{number}" in taken:
        number += 1
    return f"{name}.{number}"


def _untranslated(error: BaseException, program: Program) -> tuple[Layer | None, str]:
    """Return the layer and the operator that an error of torch's exporter names; ``None`` and "" if it does not."""
    for each in _causes(error):
        found = re.search(r"translating node %(\w+) : .*?target=([\w.]+)", str(each))
        if not found:
            continue
        nodes = [node for node in program.exported.graph.nodes if node.op == "call_function"]
        same = [node for node in nodes if node.name == found[1]] or [n for n in nodes if found[2] in f"{n.target}"]
        for node in same[:1]:
            paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
            for path in reversed(paths):
                if path in program.layers:
                    return program.layers[path], found[2]
        return None, found[2]
    return None, ""


def _layer_at(error: BaseException) -> Layer | None:
    """Return the layer that was computing when the error was raised."""
    for each in _causes(error):
        for frame, _ in reversed(list(traceback.walk_tb(each.__traceback__))):
            layer = frame.f_locals.get("self")
            if isinstance(layer, Layer):
                return layer
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, and the chain of errors that caused it or were being handled."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place(layer: Layer | None) -> str:
    return f'layer "{layer.spec.name}" ({layer.spec.type}): ' if layer else ""


def _without_separators(text: str) -> str:
    return re.sub("[,;]", "_", text)


def _first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # colours for a terminal
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _without_torchs_words() -> Iterator[None]:
    """Silence the warnings of torch's exporters about themselves, and about missing operators of torchvision."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
