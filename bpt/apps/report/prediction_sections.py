"""The part of a report about a trained network's predictions: the confusion matrix and the worst mistakes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from bpt.apps.classify.classifier_net import ClassifierNet, classifier_net
from bpt.apps.explain.explained_layer import find_layer
from bpt.apps.explain.grad_cam import grad_cam, spread
from bpt.apps.pictures.class_names import ClassNames, names_of_net
from bpt.apps.report.markup import as_pixels, overlay, picture, table
from bpt.base.errors import BptError, UsageError
from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import whole
from bpt.nn.layers.labels import places_of
from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.metrics import Confusion, ConfusionWatch
from bpt.train.metrics.classifier_layer import Predictions, predicted_classes
from bpt.train.metrics.classifier_watch import ClassifierWatch
from bpt.train.outer.report.style import check_matplotlib
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.testing import run_test
from bpt.train.runtime.trained_weights import load_trained

WORST = 12  # mistakes that are shown
MOST_CLASSES = 30  # the largest number of classes whose matrix is shown whole
PAIRS = 20  # of more classes, the pairs that are confused most often
BATCHES = 50  # as bpt test


@dataclass(frozen=True, order=True)
class Mistake:
    """A sample whose best class is not its label.

    Attributes:
        probability: the probability of the class that was predicted; mistakes are ordered by it.
        number: the position of the sample in the test.
        label, predicted: classes.
        sample: what the net saw, (channels, rows, columns).
        key: the sample's file, or what else names it in the data set; "": nothing does.
    """

    probability: float
    number: int
    label: int = field(compare=False)
    predicted: int = field(compare=False)
    sample: NDArray[Any] = field(compare=False)
    key: str = field(default="", compare=False)


class MistakeWatch(ClassifierWatch):
    """A ClassifierWatch that keeps the mistakes of which the net was most certain.

    Predicted classes are those of ``predicted_classes``, as in the confusion matrix.

    Args:
        net: the test net.
        data: the edge of the pictures that the labels belong to.
    """

    def __init__(self, net: Net, data: int) -> None:
        super().__init__(net)
        self._worst: list[Mistake] = []
        self._count = 0
        node = net.graph.nodes[net.graph.edges[data].producer]
        self._layer, self._top = net.layer(node), node.tops.index(data)
        self._pictures: Tensor | None = None
        self._data_hook: RemovableHandle | None = None

    def worst(self) -> list[Mistake]:
        """Return the mistakes, the most certain one first, with their keys. It reads their samples again."""
        found = sorted(self._worst, reverse=True)
        if not isinstance(self._layer, PrefetchingDataLayer):
            return found
        keys = self._layer.keys([mistake.number for mistake in found])
        return [replace(mistake, key=key) for mistake, key in zip(found, keys, strict=True)]

    def __enter__(self) -> MistakeWatch:
        self._data_hook = self._layer.register_forward_hook(self._note_pictures)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        assert self._data_hook is not None
        self._data_hook.remove()

    def _note_pictures(self, layer: object, bottoms: object, tops: Any) -> None:
        self._pictures = tops[self._top] if isinstance(tops, tuple) else tops

    def _take(self, seen: Predictions) -> None:
        assert self._classifier is not None
        assert self._pictures is not None
        if seen.labels.dim() > 1:
            return
        rows, labels = seen.counted()
        numbers = torch.arange(len(seen.labels), device=labels.device)
        if seen.counts is not None:
            numbers = numbers[seen.counts]
        predicted = predicted_classes(rows, labels, places_of(rows, labels))
        shares = rows.float() if self._classifier.normalised else rows.float().softmax(1)
        certain = shares.gather(1, predicted[:, None])[:, 0]
        for place in (predicted != labels).nonzero().flatten().tolist():
            index = int(numbers[place])
            sample = self._pictures[index].float().cpu().numpy().copy()
            found = Mistake(
                float(certain[place]), self._count + index, int(labels[place]), int(predicted[place]), sample
            )
            (heapq.heappush if len(self._worst) < WORST else heapq.heappushpop)(self._worst, found)
        self._count += len(seen.labels)


def prediction_sections(
    solver: SolverSource, weights: Sequence[str], iterations: int | None = None, labels: str = ""
) -> Iterator[str]:
    """Test a trained network, and yield the HTML of its confusion matrix and of its worst mistakes with Grad-CAM.

    Args:
        solver: the solver's text, whose network is tested.
        weights: the files of weights.
        iterations: the number of batches; by default the solver's first ``test_iter``.
        labels: the file of the class names; see ``names_of_net``.

    Raises:
        UsageError: the network is not in a file of its own, or does not classify pictures.
        UserError: a text or a file is wrong.
    """
    check_matplotlib()
    param = solver.param
    model = param.net or (param.test_net[0] if param.test_net else "")
    if not model:
        raise UsageError("--weights needs a solver whose network is a file (net: or test_net:)")
    plan = file_plan(model, pb.TEST)
    batches = iterations or (param.test_iter[0] if param.test_iter else BATCHES)
    confusion, mistakes, counted = _tested(plan, weights, model, batches)
    classes = len(confusion.matrix)
    names = names_of_net(labels, model, classes)
    yield "<h2>Predictions</h2>"
    files = escape(", ".join(weights))
    yield f"<p>By the weights of {files}:"
    yield f"{counted} samples of the test data, {confusion.top(1):.2%} of them correct.</p>"
    yield from _matrix(confusion, names)
    yield from _worst(plan, weights, model, mistakes, names)


def _tested(plan: NetPlan, weights: Sequence[str], model: str, iterations: int) -> tuple[Confusion, list[Mistake], int]:
    graph = build_graph_of(plan)
    data = _pictures_of(graph)
    if data is None:
        raise UsageError(f"{model}: --weights shows predictions of a net that reads pictures by a data layer")
    device = torch.device("cpu")
    with closing(make_net(graph, device)) as net:
        load_trained(net, weights, model)
        with ConfusionWatch(net) as counts, MistakeWatch(net, data) as mistakes:
            run_test(Operator(net, whole(graph), device), iterations)
        found, worst = counts.result(SerialCommunicator()), mistakes.worst()
    if found is None:
        raise UsageError(
            f"{model}: the network has no layer that compares classes with labels, so there is no confusion"
        )
    return found, worst, int(found.labels.sum())


def _pictures_of(graph: LayerGraph) -> int | None:
    """Return the first edge of pictures that a data layer makes; ``None`` without one."""
    for node in graph.nodes:
        shape = graph.edges[node.tops[0]].shape if node.tops and not node.bottoms else ()
        if len(shape) == 4 and shape[1] in (1, 3) and node.type != "Input":
            return node.tops[0]
    return None


def _matrix(confusion: Confusion, names: ClassNames) -> Iterator[str]:
    """Yield the table of labels (rows) and predicted classes, or of the most confused pairs of many classes."""
    matrix, labels = confusion.matrix, confusion.labels
    words = [escape(names.short(number)) for number in range(len(matrix))]
    yield "<h3>Confusion</h3>"
    if len(matrix) > MOST_CLASSES:
        off = matrix.copy()
        np.fill_diagonal(off, 0)
        order = np.argsort(-off, axis=None, kind="stable")[:PAIRS]
        pairs = [divmod(int(place), len(matrix)) for place in order if off.flat[place]]
        rows = [[names.words(row), names.words(column), off[row, column], labels[row]] for row, column in pairs]
        yield from table(["label", "predicted", "samples", "samples with this label"], rows)
        return
    yield "<p>Rows are labels and columns are predicted classes.</p>"
    yield '<table class="confusion">\n<tr><th></th>' + "".join(f"<th>{word}</th>" for word in words)
    yield "<th>correct</th></tr>"
    for row, (word, share) in enumerate(zip(words, confusion.of_classes(), strict=True)):
        most = max(int(labels[row]), 1)
        cells = (
            f'<td style="--share: {count / most:.3f}"{" class=right" * (row == column)}>{count}</td>'
            for column, count in enumerate(matrix[row].tolist())
        )
        correct = f"{share:.1%}" if labels[row] else ""
        yield f"<tr><th>{word}</th>{''.join(cells)}<td>{correct}</td></tr>"
    yield "</table>"


def _worst(
    plan: NetPlan, weights: Sequence[str], model: str, mistakes: Sequence[Mistake], names: ClassNames
) -> Iterator[str]:
    """Yield the mistakes as pictures, each beside the evidence for the predicted class."""
    yield "<h3>Worst mistakes</h3>"
    if not mistakes:
        yield "<p>There is none.</p>"
        return
    try:
        heats = _heats(classifier_net(plan), weights, model, mistakes)
        words = "The second picture of each shows by Grad-CAM where the net found evidence for the predicted class."
    except BptError as error:
        heats, words = [None] * len(mistakes), f"There is no Grad-CAM: {error}."
    yield "<p>The wrong predictions of which the net was most certain. The contrast of the pictures is stretched: the"
    yield f'lowest value of each is black, and the highest white. {escape(words)}</p>\n<div class="mistakes">'
    for mistake, heat in zip(mistakes, heats, strict=True):
        where = f"sample {mistake.number}" + (f" ({mistake.key})" if mistake.key else "")
        said = (
            f"{where}: label {names.words(mistake.label)}, predicted {names.words(mistake.predicted)} "
            f"({mistake.probability:.0%})"
        )
        pixels = as_pixels(mistake.sample)
        views = [picture(pixels, said)]
        if heat is not None:
            views.append(picture(overlay(pixels, heat), f"evidence in {said}"))
        yield f"<figure>{''.join(views)}<figcaption>{escape(said)}</figcaption></figure>"
    yield "</div>"


def _heats(
    explained: ClassifierNet, weights: Sequence[str], model: str, mistakes: Sequence[Mistake]
) -> list[NDArray[np.float32] | None]:
    """Return the Grad-CAM map of each mistake's predicted class, on the picture's grid."""
    net = make_net(explained.graph, torch.device("cpu"))
    net.requires_grad_(False)
    load_trained(net, weights, model, asked=[explained.scores])
    layer, box = find_layer(explained), explained.input.shape[2:]
    grid = [np.arange(side, dtype=np.float64) for side in box]
    heats: list[NDArray[np.float32] | None] = []
    for mistake in mistakes:
        sample = torch.from_numpy(mistake.sample)[None]
        found = grad_cam(net, sample, layer, explained.scores, mistake.predicted)
        heats.append(spread(found.heat, box, grid).astype(np.float32))
    return heats
