"""Explain a class of a scan or an image: run the net, compute the Grad-CAM map, and write it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bpt.apps.classify.classifier_net import ClassifierNet, classifier_net
from bpt.apps.explain.explained_layer import find_layer, layer_of
from bpt.apps.explain.grad_cam import Explanation, grad_cam, spread
from bpt.apps.explain.model_input import (
    ExplainedSubject,
    check_outputs,
    peak,
    prefix_of,
    preprocessing_of,
    recorded_volume,
)
from bpt.apps.explain.subjects import ExplainedPicture, Scan
from bpt.apps.pictures.class_names import ClassNames, names_of_net
from bpt.apps.pictures.image_input import NOBODY_SAYS, how_to_say, record_of, recorded_input
from bpt.base.errors import FileError, UsageError, UserError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Edge
from bpt.train.outer.report.style import check_matplotlib
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import MissingWeights, weight_files
from bpt.train.state.weights import check_weights

LOG = logging.getLogger("bpt")
VOLUMES = (".nii", ".nii.gz")
MOST = 5  # number of classes that are listed, in addition to the explained one


@dataclass(frozen=True)
class ExplainRequest:
    """The settings of the command line; empty and ``None`` mean the default.

    Attributes:
        model: the network's text.
        weights: the files of the trained weights.
        input: a NIfTI or an image file.
        layer: the explained layer, by its name or its top's.
        chosen: the explained class, from 0.
        output: the beginning of the written files' names.
        intensity, mean, scale: the transformation of the input's numbers; see ``preprocessing_of``.
        preprocessing: a record of how images are prepared; see ``image_input``.
        missing: how to treat layers that the scores depend on and that no file of weights has.
        labels: the file of the class names; see ``names_of_net``.
        level: the network's level.
        stages: the network's stages.
    """

    model: str
    weights: Sequence[str]
    input: str
    layer: str = ""
    chosen: int | None = None
    output: str = ""
    intensity: str = ""
    mean: Sequence[float] = ()
    scale: float | None = None
    preprocessing: str = ""
    missing: MissingWeights = MissingWeights.REFUSE_RANDOM
    labels: str = ""
    level: int = 0
    stages: tuple[str, ...] = ()


def explain(request: ExplainRequest, device: torch.device) -> Iterator[str]:
    """Explain a class, write the map and its picture, and yield the lines of ``bpt explain``.

    Raises:
        UserError: a file or a setting is wrong; the message says what and where.
        RunError: numbers are not finite, memory is too small, or a file could not be written.
    """
    check_matplotlib()
    explained = classifier_net(file_plan(request.model, pb.TEST, request.level, request.stages))
    layer = find_layer(explained, request.layer)
    names = names_of_net(request.labels, request.model, explained.classes)
    subject = _read(request, explained)
    prefix = prefix_of(request.output, request.input)
    outputs = subject.outputs(prefix)
    check_outputs(outputs, request.input)
    net = make_net(explained.graph, device)
    net.requires_grad_(False)  # only the layer's own gradient is wanted
    load_trained(net, request.weights, request.model, missing=request.missing, asked=[explained.scores])
    sample = torch.from_numpy(subject.sample)[None].to(device)
    found = grad_cam(net, sample, layer, explained.scores, request.chosen)
    probabilities = torch.softmax(found.scores, 0) if explained.by_softmax else None

    yield subject.description
    yield f'Class scores: blob "{explained.scores.blob}", {explained.found}'
    if explained.left_out:
        yield f"Left out, because they need more than the input: {', '.join(explained.left_out)}"
    yield _about(explained, layer, request.layer)
    yield ""
    yield from _table(found, probabilities, names)
    yield ""

    heat = spread(found.heat, explained.input.shape[2:], subject.positions)
    place = peak(heat)
    if not heat.any():
        yield f"The layer finds no evidence for {names.in_sentence(found.chosen)}: the map is 0 everywhere"
    else:
        yield f"The map of {names.in_sentence(found.chosen)} is largest at {subject.where(place)}"
    title = (
        f"{Path(request.input).name}: {_title_words(found, probabilities, names)}, "
        f"layer {layer_of(explained.graph, layer)}"
    )
    subject.write(prefix, heat, place, title)
    yield f"Wrote {' and '.join(map(str, outputs))}"


def _read(request: ExplainRequest, net: ClassifierNet) -> ExplainedSubject:
    path = request.input
    if net.axes not in (2, 3):
        raise UserError(
            f'the net\'s input "{net.input.blob}" {net.input.shape} has {net.axes} spatial axes; '
            "bpt explain takes nets for images (2) and for scans (3)"
        )
    if os.path.isfile(path) and path.lower().endswith(VOLUMES) != (net.axes == 3):
        wanted = "an image" if net.axes == 2 else f"a volume ({' or '.join(VOLUMES)})"
        raise FileError(path, f'is not what the net takes: its input "{net.input.blob}" {net.input.shape} is {wanted}')
    shape = net.input.shape[1:]
    by_flags = bool(request.intensity or request.mean or request.scale is not None)
    if request.preprocessing and by_flags:
        raise UsageError("--preprocessing contradicts --intensity, --mean and --scale; give the file or the others")
    if not by_flags and (recorded := _recorded(net, weight_files(request.weights), request.preprocessing)):
        return recorded(path)
    if net.axes == 2 and not by_flags and net.data.type == "Input":
        check_weights(weight_files(request.weights))
        LOG.warning("%s, so the whole image is normalised by its Z_SCORE; %s", NOBODY_SAYS, how_to_say())
    preprocessing = preprocessing_of(net, request.intensity, request.mean, request.scale)
    return (ExplainedPicture if net.axes == 2 else Scan)(path, shape, preprocessing)


def _recorded(net: ClassifierNet, weights: Sequence[str], given: str) -> Callable[[str], ExplainedSubject] | None:
    """Return a reader that prepares the input as the record or the net's data layer says; ``None`` without these."""
    shape = net.input.shape[1:]
    if net.axes == 2:
        prepare = recorded_input(net, weights, given)
        return None if prepare is None else lambda path: ExplainedPicture(path, shape, prepare)
    record = record_of(weights, given) if given or net.data.type == "Input" else ""
    return (lambda path: Scan(path, shape, recorded_volume(record))) if record else None


def _about(net: ClassifierNet, layer: Edge, named: str) -> str:
    name, shape = layer_of(net.graph, layer), "×".join(map(str, layer.shape[2:]))
    how = "" if named else f"; the last before the scores with {net.axes} spatial axes"
    return f'Layer: {name}, blob "{layer.blob}" with {layer.shape[1]} maps of {shape}{how}'


def _table(found: Explanation, probabilities: Tensor | None, names: ClassNames) -> Iterator[str]:
    head = f"{'class':>6}{'score':>12}" + (f"{'probability':>14}" if probabilities is not None else "")
    yield head + ("  name" if names else "")
    order = found.scores.argsort(descending=True, stable=True).tolist()
    listed = sorted({*order[:MOST], found.chosen})
    width = max(len("name"), *(len(names[number]) for number in listed))
    for number in listed:
        words = [word for word, fits in (("predicted", found.best), ("explained", found.chosen)) if number == fits]
        line = f"{number:>6}{found.scores[number].item():>12.5g}"
        if probabilities is not None:
            line += f"{probabilities[number].item():>14.5f}"
        if names:
            line += f"  {names[number]:<{width}}"
        yield (line + (f"  {', '.join(words)}" if words else "")).rstrip()
    if len(order) > len(listed):
        yield f"   and {len(order) - len(listed)} classes with lower scores"


def _title_words(found: Explanation, probabilities: Tensor | None, names: ClassNames) -> str:
    """Return the predicted class, its probability and, if it is another class, the explained one, as a title."""
    sure = "" if probabilities is None else f" (probability {probabilities[found.best].item():.3f})"
    other = "" if found.chosen == found.best else f", explained: {names.in_sentence(found.chosen)}"
    return f"predicted {names.in_sentence(found.best)}{sure}{other}"
