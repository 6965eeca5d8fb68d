"""``bpt explain``: show which regions of a scan or an image support a class (Grad-CAM)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import (
    Parser,
    add_gpu,
    add_labels,
    add_missing_weights,
    add_model,
    add_state,
    add_weights,
    count,
    missing_weights_of,
    need,
    need_one_process,
    real,
    weights_of,
    words,
)

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "show which regions of an input support a class (Grad-CAM)"
DESCRIPTION = """\
Runs a classifier on one scan (NIfTI, for nets with three spatial axes) or image (PNG, JPEG; two axes). Grad-CAM shows
in which regions a layer finds evidence for a class. For a scan it writes PREFIX.nii.gz and PREFIX.png. The first is a
heat map from 0 to 1 on the scan's own grid, an overlay for any viewer; the second shows three planes through the map's
maximum. For an image it writes PREFIX.png.

  bpt explain --model deploy.prototxt --weights W.caffemodel --input scan.nii.gz
  bpt explain --model M --weights W --input scan.nii.gz --layer conv4 --class 1 --output patient7

The model is a deploy text or a train_val text; the file replaces its data layer. The command prepares an image as bpt
classify does. docs/explain.md explains how it finds class scores, layer and intensities.
"""
INTENSITIES = ("RAW", "Z_SCORE", "MIN_MAX")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt explain``."""
    add_model(parser)
    add_weights(parser, "the trained weights: .caffemodel, or HDF5")
    add_missing_weights(parser)
    parser.flag("input", "the scan (.nii, .nii.gz) or the image (.png, .jpg)", metavar="FILE", default="")
    parser.flag(
        "layer",
        "the layer that is explained, by its name or its top's; default: the last one with spatial axes before the "
        "scores",
        metavar="NAME",
        default="",
    )
    help = "the class that is explained, from 0; default: the predicted one"
    parser.flag("class", help, metavar="N", type=count, dest="chosen")
    parser.flag(
        "output",
        "the beginning of the written files' names; default: the input's name and _cam, in this folder",
        metavar="PREFIX",
        default="",
    )
    parser.flag(
        "intensity",
        "how intensities are normalised; default: as the model's data layer or the record beside the weights says, or "
        "Z_SCORE",
        metavar="|".join(INTENSITIES),
        choices=INTENSITIES,
        default="",
    )
    parser.flag(
        "mean",
        "numbers to subtract: one, or one a channel (blue, green, red)",
        metavar="X[,X...]",
        type=numbers,
        default=(),
    )
    parser.flag("scale", "a factor to multiply with after the mean is subtracted", metavar="X", type=real)
    parser.flag(
        "preprocessing",
        "a text that says how inputs are prepared, as for bpt classify; default: the model's data layer, or the "
        "record beside the weights",
        metavar="FILE",
        default="",
    )
    add_labels(parser)
    add_gpu(parser, default="the CPU")
    add_state(parser)


def numbers(text: str) -> tuple[float, ...]:
    """Return numbers separated by commas, for argparse."""
    return tuple(map(real, text.split(",")))


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt explain``: show in which regions of an input a net finds evidence for a class."""
    need(arguments, "model", "the network to explain")
    need(arguments, "weights", "the trained model")
    need(arguments, "input", "the scan or the image")
    weights = weights_of(arguments)
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.explain.explain_inputs import ExplainRequest, explain

    request = ExplainRequest(
        model=arguments.model,
        weights=weights,
        input=arguments.input,
        layer=arguments.layer,
        chosen=arguments.chosen,
        output=arguments.output,
        intensity=arguments.intensity,
        mean=arguments.mean,
        scale=arguments.scale,
        preprocessing=arguments.preprocessing,
        missing=missing_weights_of(arguments),
        labels=arguments.labels,
        level=arguments.level,
        stages=words(arguments.stage),
    )
    for line in explain(request, job.begin(gpu=arguments.gpu)):
        print(line)
