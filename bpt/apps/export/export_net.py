"""Export a net: write a temporary file, compare it with the net, and give it its name if both agree."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from bpt.apps.export.parity import TOLERANCE, Runner, compare, runner_of_onnx, runner_of_pt2
from bpt.apps.export.program import OPSET, OPSETS, Program, program_of, write_onnx, write_pt2
from bpt.apps.export.random_inputs import RandomInputs
from bpt.apps.pictures.class_names import names_of_net
from bpt.apps.pictures.deploy_net import reads_own_data
from bpt.apps.pictures.deploy_text import for_use
from bpt.apps.pictures.fed_net import fed_net
from bpt.apps.pictures.image_input import ImageInput, record_of, recorded_input
from bpt.apps.torch_module.module import module_of
from bpt.base.atomic import check_place
from bpt.base.errors import BptError, RunError, UsageError, UserError
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import to_text
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.nn.net_graph import build_graph_of
from bpt.train.runtime.trained_weights import REMEDIES
from bpt.train.state import MissingWeights

LOG = logging.getLogger("bpt")
ONNX, PT2 = ".onnx", ".pt2"
INPUT, PREPROCESSING, CLASSES = "bpt.input", "bpt.preprocessing", "bpt.classes"
"""Keys of a model's ``metadata_props``: the input that takes pictures, their preparation, a class name on each line."""


@dataclass(frozen=True)
class ExportRequest:
    """The net to export, and the settings of the export.

    Attributes:
        model: the network's text file.
        output: the file to write: ``.onnx``, or ``.pt2``, which torch loads.
        weights: the files of weights; (): the text's fillers draw them.
        opset: the version of ONNX's operators.
        level: the network's level.
        stages: the network's stages.
        missing: how to treat layers that no file of weights has.
    """

    model: str
    output: str
    weights: tuple[str, ...] = ()
    opset: int = OPSET
    level: int = 0
    stages: tuple[str, ...] = ()
    missing: MissingWeights = MissingWeights.REFUSE_RANDOM


def export_net(request: ExportRequest) -> Iterator[str]:
    """Write the file, and yield the lines of ``bpt export``.

    Raises:
        UserError: the net has no inputs, or cannot be written in this format.
        RunError: the outputs of the file differ from the net's; no file is left behind.
    """
    path = Path(request.output)
    if path.suffix not in (ONNX, PT2):
        raise UsageError(f"--output: takes a file that ends in {ONNX} or {PT2}, found {request.output}")
    if request.opset not in OPSETS:
        raise UsageError(f"--opset: takes {OPSETS[0]} to {OPSETS[-1]}, found {request.opset}")
    check_place(path)
    plan = file_plan(request.model, pb.TEST, request.level, request.stages)
    if reads_own_data(plan):
        plan = for_use(plan)
        yield f"{request.model}: a train text; bpt exports the deploy text that bpt deploy derives from it"
    graph = build_graph_of(plan)
    if not graph.inputs:
        others = ", ".join(f'"{node.name}" ({node.type})' for node in graph.nodes if not node.bottoms) or "none"
        raise UserError(
            f"{request.model}: the caller sets the inputs of an exported net, but this net has other sources: "
            f"{others}; give the deploy text (deploy.prototxt), whose input is a layer of type Input"
        )
    if not graph.outputs:
        raise UserError(f"{request.model}: the net has no outputs to export: a layer reads each blob")
    module = module_of(plan, request.weights, missing=request.missing, remedy=REMEDIES[request.missing])
    pictures = _recorded_pictures(plan, request.weights)
    inputs = RandomInputs(graph, *((pictures[0], pictures[1].random) if pictures else ()))
    program = program_of(module, inputs, (graph.inputs, [edge.blob for edge in graph.outputs]))
    kind = f"ONNX, opset {request.opset}" if path.suffix == ONNX else "a program of torch"
    yield f"{path}: {kind}; {graph.num_parameters:,} parameters; inputs {', '.join(graph.inputs)}"
    if path.suffix == ONNX:
        for name, called in zip(program.outputs, program.onnx_outputs, strict=True):
            if name != called:
                yield f'the output "{name}" is called "{called}", because an input has its name'
    if program.fixed:
        yield f"for batches of {inputs.shapes[0][0] if inputs.shapes[0] else 1} only ({program.fixed})"
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        written = Path(folder) / path.name
        runner = write(program, written, request.opset, _metadata(request.model, graph, pictures))
        if pictures:
            yield f"random pictures as {pictures[0]}: {pictures[1]}"
        yield from check(module, runner, inputs, (1,) if program.fixed else (2, 3))
        for each in sorted(Path(folder).iterdir(), key=lambda each: each.name == path.name):
            os.replace(each, path.parent / each.name)


def _recorded_pictures(plan: NetPlan, weights: Sequence[str]) -> tuple[str, ImageInput] | None:
    """Return the input that takes pictures and their preparation; ``None`` if nothing records the preparation."""
    try:
        net = fed_net(plan)
        recorded = recorded_input(net, weights)
        if recorded is None:
            return None
        recorded.random(1, np.random.default_rng(0))
    except BptError as error:
        if record_of(weights):
            LOG.warning("The check runs on random numbers, not on prepared pictures: %s", error)
        return None
    return net.input.blob, recorded


def _metadata(model: str, graph: LayerGraph, pictures: tuple[str, ImageInput] | None) -> dict[str, str]:
    """Return what an ONNX model says of its use: how pictures are prepared for which input, and names of classes."""
    found = {}
    if pictures:
        found[INPUT], found[PREPROCESSING] = pictures[0], to_text(pictures[1].record)
    shapes = [edge.shape for edge in graph.outputs]
    if len(shapes) == 1 and len(shapes[0]) > 1:
        classes = count(shapes[0][1:])
        if names := names_of_net("", model, classes):
            found[CLASSES] = "\n".join(names[number] for number in range(classes))
    return found


def write(program: Program, path: Path, opset: int = OPSET, metadata: Mapping[str, str] | None = None) -> Runner:
    """Write the program to ``path`` in the format that its suffix names, and return a runner of the file.

    Args:
        program: the program.
        path: the file.
        opset: the version of ONNX's operators.
        metadata: what an ONNX model says of itself; a program of torch does not.
    """
    if path.suffix == ONNX:
        write_onnx(program, path, opset, metadata)
        return runner_of_onnx(path, program.inputs)
    write_pt2(program, path)
    return runner_of_pt2(path)


def check(module: nn.Module, runner: Runner, inputs: RandomInputs, times: tuple[int, ...]) -> Iterator[str]:
    """Run the net and the file on random inputs, and yield the differences of their outputs.

    Raises:
        RunError: a difference is larger than rounding explains.
    """
    differences = compare(module, runner, inputs, times)
    yield from map(str, differences)
    worst = [each for each in differences if not each.passes]
    if worst:
        raise RunError(f"what was written is not the net: {worst[0]}; nothing was left behind (run by {runner.name})")
    within = f"{TOLERANCE:g}" if all(each.is_small for each in differences) else "what rounding does to the net itself"
    yield f"checked on random inputs by {runner.name}: all within {within}"
