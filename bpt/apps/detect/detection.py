"""Detect objects in pictures: their classes, their scores, and their boxes in pixels of the picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.apps.detect.box_drawing import BoxDrawing, draw, unique_outputs
from bpt.apps.detect.detector_net import DetectorNet, detector_net
from bpt.apps.pictures.class_names import ClassNames, names_of_net
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.apps.pictures.picture_net import DamagedPictures, PictureNet
from bpt.config.plan.nets import NetPlan
from bpt.data.detection.truth import NO_IMAGE
from bpt.data.object_boxes import Box, around
from bpt.graph.layer_spec import Shape
from bpt.train.state import MissingWeights


class Detection(NamedTuple):
    """An object: its class, its score, and its box (xmin, ymin, xmax, ymax) in pixels, within the picture."""

    label: int
    score: float
    box: tuple[float, float, float, float]


class Detections(NamedTuple):
    """The objects of a picture.

    Attributes:
        picture: the picture.
        size: its height and width, in pixels.
        found: the objects, by descending score.
    """

    picture: NamedPicture
    size: Shape
    found: Sequence[Detection]


@dataclass(frozen=True)
class Detector:
    """A trained net that finds objects in pictures, with the names of its classes; ``of`` makes it."""

    net: DetectorNet
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
    ) -> Detector:
        """Return the net of ``plan`` with the trained ``weights``.

        Args:
            plan: the net's text.
            batch: number of pictures that the net runs on at once.
            labels: the file of the class names; see names_of_net.
            weights, device, preprocessing, missing: see PictureNet.of.

        Raises:
            UserError: the text, the weights or a file is wrong, or nothing says how pictures are to be prepared.
        """
        net = detector_net(plan, batch)
        pictures = PictureNet.of(net, weights, device, preprocessing, net.found, missing=missing)
        return cls(net, pictures, names_of_net(labels, net.model, net.classes))

    def detections(
        self, asked: Sequence[NamedPicture], threshold: float, damaged: DamagedPictures | None = None
    ) -> Iterator[Detections]:
        """Yield the objects with a score of at least ``threshold`` in each picture, in order.

        For ``damaged`` see PictureNet.batches.
        """
        for part, prepared in self.pictures.batches(asked, damaged):
            made = self.pictures.run(prepared, self.net.found)
            rows = made.reshape(-1, made.shape[-1])
            rows = rows[(rows[:, 1] != NO_IMAGE) & (rows[:, 2] >= threshold)]
            for place, picture in enumerate(part):
                own = rows[rows[:, 0] == place]
                size = prepared.sizes[place]
                yield Detections(picture, size, _in_pixels(own, prepared.parts[place], size))


def _in_pixels(rows: Tensor, part: Box, size: Shape) -> list[Detection]:
    """Return the objects of one picture, by descending score; ``part`` is the part of the picture that the net saw."""
    rows = rows[rows[:, 2].argsort(descending=True, stable=True)]
    height, width = size
    boxes = around(rows[:, 3:].numpy(), part).clip(0, 1) * (width, height, width, height)
    return [
        Detection(int(label), float(score), (xmin, ymin, xmax, ymax))
        for (label, score), (xmin, ymin, xmax, ymax) in zip(rows[:, 1:3].tolist(), boxes.tolist(), strict=True)
    ]


def report_lines(
    detector: Detector,
    asked: Sequence[NamedPicture],
    threshold: float,
    as_json: bool,
    folder: str = "",
    damaged: DamagedPictures | None = None,
) -> Iterator[str]:
    """Yield the lines of ``bpt detect``.

    Args:
        detector: the net.
        asked: the pictures.
        threshold: the lowest score to report.
        as_json: yield a line of JSON for each picture.
        folder: the folder for pictures with their boxes; "": none are written.
        damaged: see PictureNet.batches.
    """
    if not as_json:
        yield f"Prepared: {detector.pictures.input}"
    files = [each.path for each in asked]
    drawings = iter(zip(files, unique_outputs(folder, files) if folder else [""] * len(files), strict=True))
    for detected in detector.detections(asked, threshold, damaged):
        drawing = next(drawn for file, drawn in drawings if file == detected.picture.path)  # skips damaged ones
        if drawing:
            draw(detected.picture.path, drawing, [_drawn(detector.names, each) for each in detected.found])
        if as_json:
            yield json.dumps(_plain(detector.names, detected, drawing))
            continue
        yield f"{detected.picture.path}{f' → {drawing}' if drawing else ''}{'' if detected.found else ': nothing'}"
        for each in detected.found:
            xmin, ymin, xmax, ymax = (round(value) for value in each.box)
            name = detector.names.words(each.label)
            yield f"  {each.score:.4f}  {name}, from ({xmin}, {ymin}) to ({xmax}, {ymax})"


def _drawn(names: ClassNames, found: Detection) -> BoxDrawing:
    return BoxDrawing(f"{names.short(found.label)} {found.score:.2f}", found.label, found.box)


def _plain(names: ClassNames, detected: Detections, drawing: str) -> dict[str, object]:
    height, width = detected.size
    objects = [{**names.plain(each.label), "score": each.score, "box": list(each.box)} for each in detected.found]
    drawn = {"drawn": drawing} if drawing else {}
    return {"file": detected.picture.path, "width": width, "height": height, **drawn, "objects": objects}
