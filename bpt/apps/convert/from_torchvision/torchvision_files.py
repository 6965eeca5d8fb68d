"""Write a network of torchvision as files of Caffe: weights, deploy text, and the record of the preprocessing."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bpt.apps.commands.examples import home
from bpt.apps.convert.conversion import write_compared
from bpt.apps.convert.from_torchvision.input_scaling import CROP, InputScaling
from bpt.apps.convert.from_torchvision.models import IMAGENET_CLASSES, TorchvisionModel, model_of
from bpt.apps.convert.from_torchvision.state_dict import (
    SourceWeights,
    check_tensors,
    class_count,
    fetch_state_dict,
    read_state_dict,
)
from bpt.apps.convert.layer_arrays import ENDINGS, LayerArrays, WeightsFile, check_target
from bpt.base.atomic import check_place, write_text
from bpt.base.errors import UserError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.layout import layout
from bpt.train.state.preprocessing import path_of, prefix_of, write_preprocessing

_WIDTH = 110


@dataclass(frozen=True)
class ConvertedNet:
    """A network of torchvision in Caffe's form.

    Attributes:
        model: the network.
        classes: the number of its classes.
        text: its deploy text.
        weights: its layers and their blobs, for the input that ``model.scaling`` records.
    """

    model: TorchvisionModel
    classes: int
    text: pb.NetParameter
    weights: WeightsFile


def convert_torchvision(origin: str, weights: str, output: str, raw: str = "") -> Iterator[str]:
    """Write the files of a network of torchvision, and yield lines that report on them.

    Args:
        origin: the network, as ``torchvision:resnet50``.
        weights: a file with its state_dict; "": the default weights of the package torchvision.
        output: a folder, the beginning of the files' names, or the name of the file of weights.
        raw: how numbers are stored; see write_weights.

    Raises:
        UsageError: the network is unknown, or there are no weights.
        FileError: the weights cannot be read or do not fit the network, or ``output`` cannot be written.
        WriteError: a file could not be written.
    """
    model = model_of(origin)
    target = _target(output, model.name)
    check_target(target, raw)
    check_place(target)
    source = read_state_dict(weights) if weights else fetch_state_dict(model)
    net = converted(source, model)
    yield from write_compared(net.weights, target, raw)
    prefix = prefix_of(target)
    record = path_of(prefix)
    write_preprocessing(prefix, model.scaling.record(source.resized))
    yield f"{record}: {_preparation(model.scaling, source.resized)}"
    deploy = _shipped(model) if net.classes == IMAGENET_CLASSES else ""
    if deploy:
        yield f"{deploy}: has the same architecture; to train, give data layers the mean_value and scale of {record}"
    else:
        deploy = f"{prefix}_deploy.prototxt"
        write_text(deploy, _head(net, os.path.basename(record)) + layout(net.text))
        yield f"{deploy}: the architecture of torchvision, {net.classes} classes"
    if model.note:
        yield f"note: {model.note}"
    yield "Next:"
    yield f"  bpt classify --model {shlex.quote(deploy)} --weights {shlex.quote(target)} cat.jpg"


def converted(source: SourceWeights, model: TorchvisionModel) -> ConvertedNet:
    """Return the network with the weights of ``source``.

    Raises:
        FileError: the weights do not fit the network.
    """
    classes = class_count(source, model)
    stack = model.build(classes)
    tensors = check_tensors(source, stack.expected, model)
    first = next(iter(stack.expected))  # the weights of the first convolution
    tensors[first] = model.scaling.adapt(tensors[first])
    blobs = {each.layer: each.blobs(tensors) for each in stack.tensors}
    layers = tuple(LayerArrays(header, blobs.get(header.name, ())) for header in stack.headers())
    settings = pb.NetParameter(name=stack.param.name)
    return ConvertedNet(model, classes, stack.param, WeightsFile(layers, settings=settings))


def _target(output: str, name: str) -> str:
    """Return the file of weights for what ``--output`` names; make the folder, if it names one by a slash.

    Raises:
        WriteError: the folder could not be made.
    """
    if output.endswith(ENDINGS):
        return output
    if output.endswith("/"):
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(output, error.strerror) from None
    prefix = os.path.join(output, name) if os.path.isdir(output) else output
    return f"{prefix}{ENDINGS[0]}"


def _shipped(model: TorchvisionModel) -> str:
    """Return the text of ``prototxt/`` with the architecture of ``model``; "": there is none, or none is installed."""
    try:
        path = home() / "prototxt" / model.shipped / "deploy.prototxt" if model.shipped else None
    except UserError:
        return ""
    if path is None:
        return ""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _preparation(scaling: InputScaling, resized: int) -> str:
    means = ", ".join(f"{value:g}" for value in scaling.mean_values)
    return (
        f"blue, green, red; the shorter side resized to {resized}, cropped to {CROP}×{CROP}, less {means}, "
        f"times {scaling.scale:g}"
    )


def _head(net: ConvertedNet, record: str) -> str:
    """Return the comments at the top of the text."""
    scaling = net.model.scaling
    first = next(layer.name for layer in net.text.layer if layer.type == "Convolution")
    means = ", ".join(f"{value:g}" for value in scaling.mean_values)
    paragraphs = [
        f"{net.text.name} with the architecture of torchvision's {net.model.name}, written by bpt convert --from "
        f"torchvision:{net.model.name}. {net.model.about}",
        f"The input is blue, green and red from 0 to 255, less {means}, times {scaling.scale:g}, as {record} says. "
        "torchvision takes red, green and blue, each divided by a deviation of its own. The weights of "
        f'"{first}" contain both, the order of the channels and what the scale leaves of the deviations. This is '
        "exact, at the borders, too, because the mean is subtracted before zeros are added there.",
        f"To train, put data layers with the mean_value, scale and crop_size of {record} in the place of the layer "
        '"data", and SoftmaxWithLoss in the place of "prob". For other classes, give the layer below "prob" a new '
        "name. Then bpt train --weights starts from all other layers.",
    ]
    lines = [line for paragraph in paragraphs for line in [*textwrap.wrap(paragraph.strip(), _WIDTH), ""]]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])
