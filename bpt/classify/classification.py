"""Classifies pictures: which classes a net gives most to, and how often that is what a list says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bpt.classify.classifier_net import ClassifierNet, classifier_net
from bpt.classify.image_input import ImageInput, image_input
from bpt.classify.pictures import Picture
from bpt.context import PassContext
from bpt.errors import FileError, UserError
from bpt.net import Net
from bpt.plan.nets import NetPlan, file_plan
from bpt.proto import bpt_pb2 as pb
from bpt.proto.files import UnreadableError, read_bytes
from bpt.runtime.net_on_device import make_net
from bpt.runtime.trained_weights import load_trained

BATCH = 16  # pictures that go through the net at once


class Guess(NamedTuple):
    """A class, its probability or, of a net without a softmax, its score, and its name, if there is a list of names."""

    number: int
    value: float
    name: str = ""

    def __str__(self) -> str:
        """As people read it."""
        return f'{self.number} "{self.name}"' if self.name else f"class {self.number}"


@dataclass(frozen=True)
class Answer:
    """What the net says of a picture: classes from the highest score on."""

    picture: Picture
    best: Sequence[Guess]

    def __repr__(self) -> str:
        return f"<{self.picture.path}: {', '.join(f'{guess} {guess.value:.4f}' for guess in self.best)}>"


@dataclass(frozen=True)
class Classifier:
    """A trained net with all that it takes to ask it about pictures; ``load`` makes it."""

    net: ClassifierNet
    running: Net
    input: ImageInput
    labels: Sequence[str] = ()
    device: torch.device = field(default=torch.device("cpu"))

    @classmethod
    def load(
        cls,
        model: str,
        weights: Sequence[str],
        device: torch.device,
        batch: int = 1,
        *,
        labels: str = "",
        preprocessing: str = "",
        level: int = 0,
        stages: tuple[str, ...] = (),
    ) -> Classifier:
        """The net of the text ``model`` with trained ``weights``; see ``of``."""
        plan = file_plan(model, pb.TEST, level, stages)
        classifier = cls.of(plan, weights, device, batch, labels=labels, preprocessing=preprocessing)
        load_trained(classifier.running, weights, model)
        return classifier

    @classmethod
    def of(
        cls,
        plan: NetPlan,
        weights: Sequence[str],
        device: torch.device,
        batch: int = 1,
        *,
        labels: str = "",
        preprocessing: str = "",
        shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
        context: PassContext | None = None,
    ) -> Classifier:
        """The net of ``plan``, its parameters as the text fills them, but for those that are ``shared``.

        Args:
            weights: files that the parameters come from; how pictures are prepared may stand beside them.
            batch: pictures that go through it at once.
            labels: a text with the classes' names, one a line.
            preprocessing: see image_input.

        Raises:
            UserError: the text, the weights or a file is wrong, or nothing says how pictures are to be prepared.
        """
        net, model = classifier_net(plan, batch), plan.source.path
        if net.axes != 2:
            raise UserError(
                f'{model}: its input "{net.input.blob}" {net.input.shape} has {net.axes} spatial axes; images have 2'
            )
        prepare = image_input(net, weights, preprocessing)
        running = make_net(net.graph, device, context, shared, filled=shared is None)
        return cls(net, running, prepare, _labels(labels, net.classes), device)

    @torch.no_grad()
    def scores(self, files: Sequence[str]) -> Tensor:
        """Probabilities or scores (N, classes) of at most as many image files as the batch has."""
        images = torch.zeros(self.net.input.shape, dtype=self.running.context.precision.compute)
        images[: len(files)] = torch.from_numpy(self.input(files))
        values: dict[int, Tensor] = {self.net.input.index: images.to(self.device)}
        keep = frozenset({self.net.scores.index})
        with self.running.fixed_parameters():
            self.running.run(1, len(self.net.graph), values, keep, lambda tensor: tensor.to(self.device))
        scores = values[self.net.scores.index].flatten(1)[: len(files)].double().cpu()
        return scores.softmax(1) if self.net.by_softmax else scores

    def answers(self, asked: Sequence[Picture], top: int) -> Iterator[Answer]:
        """What the net says of each picture, in order: its ``top`` best classes."""
        batch = self.net.input.shape[0]
        for begin in range(0, len(asked), batch):
            part = asked[begin : begin + batch]
            for picture, row in zip(part, self.scores([each.path for each in part]), strict=True):
                order = np.argsort(-row.numpy(), kind="stable")[:top]
                yield Answer(picture, [self.guess(int(each), float(row[each])) for each in order])

    def guess(self, number: int, value: float = 1.0) -> Guess:
        return Guess(number, value, self.labels[number] if self.labels else "")


def told(classifier: Classifier, asked: Sequence[Picture], top: int, as_json: bool) -> Iterator[str]:
    """Lines that tell what the net says of pictures and, if all are labelled, how often it is right."""
    if not as_json:
        yield f"Prepared: {classifier.input}"
    right = 0
    for answer in classifier.answers(asked, min(top, classifier.net.classes)):
        picture = answer.picture
        right += answer.best[0].number == picture.label
        if as_json:
            yield json.dumps(_plain(classifier, answer))
            continue
        known = "" if picture.label is None else f", which is {classifier.guess(picture.label)}"
        yield f"{picture.path}{known}"
        yield from (f"  {guess.value:.4f}  {guess}" for guess in answer.best)
    if not as_json and all(each.label is not None for each in asked):
        yield f"accuracy = {right / len(asked):.6g} ({right} of {len(asked)})"


def _plain(classifier: Classifier, answer: Answer) -> dict[str, object]:
    value = "probability" if classifier.net.by_softmax else "score"
    classes = [
        {"class": guess.number, **({"name": guess.name} if guess.name else {}), value: guess.value}
        for guess in answer.best
    ]
    label = {} if answer.picture.label is None else {"label": answer.picture.label}
    return {"file": answer.picture.path, **label, "classes": classes}


def _labels(path: str, classes: int) -> list[str]:
    if not path:
        return []
    try:
        lines = read_bytes(path).decode("utf-8-sig").splitlines()
    except (UnreadableError, UnicodeDecodeError) as error:
        raise FileError(path, str(error)) from None
    names = [line.strip() for line in lines if line.strip()]
    if len(names) != classes:
        raise FileError(
            path, f"names {len(names)} classes, the net has {classes}; write a line for each, from class 0 on"
        )
    return names
