"""Classifies pictures: which classes a net gives most to, and how often that is what a list says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bpt.apps.classify.classifier_net import ClassifierNet, classifier_net
from bpt.apps.pictures.class_names import ClassNames, class_names, class_words, names_beside
from bpt.apps.pictures.image_input import Prepared
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.apps.pictures.picture_net import DamagedPictures, PictureNet
from bpt.config.plan.nets import NetPlan
from bpt.nn.pass_context import PassContext
from bpt.train.state import MissingWeights


class Prediction(NamedTuple):
    """A class, its probability or, of a net without a softmax, its score, and its name, if there is a list of names."""

    number: int
    value: float
    name: str = ""

    def __str__(self) -> str:
        """Return the text for people."""
        return class_words(self.number, self.name)


@dataclass(frozen=True)
class Classification:
    """The classification of a picture: classes from the highest score down."""

    picture: NamedPicture
    best: Sequence[Prediction]

    def __repr__(self) -> str:
        return f"<{self.picture.path}: {', '.join(f'{guess} {guess.value:.4f}' for guess in self.best)}>"


@dataclass(frozen=True)
class PictureClassifier:
    """A trained net with all that it takes to ask it about pictures; ``of`` makes it."""

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
            batch: pictures that go through it at once.
            labels: see class_names; "": classes.txt beside the net's text, if it names as many classes as the net has.
            weights, preprocessing, missing, shared, context: see PictureNet.of.

        Raises:
            UserError: the text, the weights or a file is wrong, or nothing says how pictures are to be prepared.
        """
        net = classifier_net(plan, batch)
        pictures = PictureNet.of(
            net, weights, device, preprocessing, net.scores, missing=missing, shared=shared, context=context
        )
        labels = labels or names_beside(net.model, net.classes)
        return cls(net, pictures, class_names(labels, net.classes))

    def scores(self, prepared: Prepared) -> Tensor:
        """Return probabilities or scores (N, classes) of at most as many pictures as the batch has."""
        made = self.pictures.run(prepared, self.net.scores)
        scores = made.flatten(1)[: len(prepared.input)].double()
        return scores.softmax(1) if self.net.by_softmax else scores

    def answers(
        self, asked: Sequence[NamedPicture], top: int, damaged: DamagedPictures | None = None
    ) -> Iterator[Classification]:
        """Yield what the net says of each picture, in order: its ``top`` best classes.

        For ``damaged`` see PictureNet.
        """
        for part, prepared in self.pictures.batches(asked, damaged):
            for picture, row in zip(part, self.scores(prepared), strict=True):
                order = np.argsort(-row.numpy(), kind="stable")[:top]
                yield Classification(picture, [self.guess(int(each), float(row[each])) for each in order])

    def guess(self, number: int, value: float = 1.0) -> Prediction:
        return Prediction(number, value, self.names[number])


def report_lines(
    classifier: PictureClassifier,
    asked: Sequence[NamedPicture],
    top: int,
    as_json: bool,
    damaged: DamagedPictures | None = None,
) -> Iterator[str]:
    """Lines that tell what the net says of pictures and, if all are labelled, how often it is right.

    Args:
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
