"""Classify pictures: list the classes with the highest scores, and compute the accuracy if a list has labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bpt.apps.classify.classifier_net import ClassifierNet, classifier_net
from bpt.apps.pictures.class_names import ClassNames, class_words, names_of_net
from bpt.apps.pictures.image_input import Prepared
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.apps.pictures.picture_net import DamagedPictures, PictureNet
from bpt.config.plan.nets import NetPlan
from bpt.nn.pass_context import PassContext
from bpt.train.state import MissingWeights


class Prediction(NamedTuple):
    """A class that a net predicts.

    Attributes:
        number: the class, from 0.
        value: its probability; its score if the net has no softmax.
        name: its name; "" if it has none.
    """

    number: int
    value: float
    name: str = ""

    def __str__(self) -> str:
        return class_words(self.number, self.name)


@dataclass(frozen=True)
class Classification:
    """The classification of a picture.

    Attributes:
        picture: the picture.
        best: the best classes, from the highest score down.
    """

    picture: NamedPicture
    best: Sequence[Prediction]

    def __repr__(self) -> str:
        return f"<{self.picture.path}: {', '.join(f'{guess} {guess.value:.4f}' for guess in self.best)}>"


@dataclass(frozen=True)
class PictureClassifier:
    """A trained net that classifies pictures, with the names of its classes; ``of`` makes it."""

    net: ClassifierNet
    pictures: PictureNet
    names: ClassNames

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
        missing: MissingWeights = MissingWeights.REFUSE_RANDOM,
        shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
        context: PassContext | None = None,
    ) -> PictureClassifier:
        """Return the net of ``plan`` with the trained ``weights``.

        Args:
            plan: the net's text.
            batch: number of pictures that the net runs on at once.
            labels: the file of the class names; see names_of_net.
            weights, device, preprocessing, missing, shared, context: see PictureNet.of.

        Raises:
            UserError: the text, the weights or a file is wrong, or nothing says how pictures are prepared.
        """
        net = classifier_net(plan, batch)
        pictures = PictureNet.of(
            net, weights, device, preprocessing, net.scores, missing=missing, shared=shared, context=context
        )
        return cls(net, pictures, names_of_net(labels, net.model, net.classes))

    def scores(self, prepared: Prepared) -> Tensor:
        """Return the probabilities or scores (N, classes) of at most as many pictures as the batch has."""
        made = self.pictures.run(prepared, self.net.scores)
        scores = made.flatten(1)[: len(prepared.input)].double()
        return scores.softmax(1) if self.net.by_softmax else scores

    def answers(
        self, asked: Sequence[NamedPicture], top: int, damaged: DamagedPictures | None = None
    ) -> Iterator[Classification]:
        """Yield the ``top`` best classes of each picture, in order.

        For ``damaged`` see PictureNet.batches.
        """
        for part, prepared in self.pictures.batches(asked, damaged):
            for picture, row in zip(part, self.scores(prepared), strict=True):
                order = np.argsort(-row.numpy(), kind="stable")[:top]
                yield Classification(picture, [self.guess(int(each), float(row[each])) for each in order])

    def guess(self, number: int, value: float = 1.0) -> Prediction:
        """Return the prediction of class ``number`` with the probability or score ``value``."""
        return Prediction(number, value, self.names[number])


def report_lines(
    classifier: PictureClassifier,
    asked: Sequence[NamedPicture],
    top: int,
    as_json: bool,
    damaged: DamagedPictures | None = None,
) -> Iterator[str]:
    """Yield the lines of ``bpt classify``: the classes of each picture and, if all have labels, the accuracy.

    Args:
        classifier: the net.
        asked: the pictures.
        top: the number of classes to list for each picture.
        as_json: yield a line of JSON for each picture.
        damaged: see PictureNet.batches; the accuracy is that of the other pictures.
    """
    if not as_json:
        yield f"Prepared: {classifier.pictures.input}"
    right = answered = 0
    for answer in classifier.answers(asked, min(top, classifier.net.classes), damaged):
        picture = answer.picture
        answered += 1
        right += answer.best[0].number == picture.label
        if as_json:
            yield json.dumps(_plain(classifier, answer))
            continue
        known = "" if picture.label is None else f", which is {classifier.guess(picture.label)}"
        yield f"{picture.path}{known}"
        yield from (f"  {guess.value:.4f}  {guess}" for guess in answer.best)
    if answered and not as_json and all(each.label is not None for each in asked):
        yield f"accuracy = {right / answered:.6g} ({right} of {answered})"


def _plain(classifier: PictureClassifier, answer: Classification) -> dict[str, object]:
    value = "probability" if classifier.net.by_softmax else "score"
    classes = [{**classifier.names.plain(guess.number), value: guess.value} for guess in answer.best]
    label = {} if answer.picture.label is None else {"label": answer.picture.label}
    return {"file": answer.picture.path, **label, "classes": classes}
