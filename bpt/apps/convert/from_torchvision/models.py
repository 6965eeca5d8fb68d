"""The networks of torchvision that bpt converts: their names, architectures and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bpt.apps.convert.from_torchvision.alexnet import build_alexnet
from bpt.apps.convert.from_torchvision.googlenet import SIDE_CLASSIFIERS, build_googlenet
from bpt.apps.convert.from_torchvision.input_scaling import HALF, IMAGENET, InputScaling
from bpt.apps.convert.from_torchvision.layer_stack import LayerStack
from bpt.apps.convert.from_torchvision.resnet import BLOCKS, build_resnet
from bpt.apps.convert.from_torchvision.vgg import CONVOLUTIONS, build_vgg
from bpt.base.errors import UsageError, did_you_mean

SOURCE = "torchvision"
IMAGENET_CLASSES = 1000


@dataclass(frozen=True)
class TorchvisionModel:
    """A network of torchvision.

    Attributes:
        name: its name in ``torchvision.models``.
        build: returns its text and the origin of its weights, for a number of classes.
        scores: the module whose weights have a row for each class.
        about: how the architecture differs from Caffe's text of this name.
        scaling: how pixels become its input.
        left_out: the beginnings of keys that the text has no layers for.
        shipped: the folder of ``prototxt/`` with the same architecture, for 1000 classes; "": none.
        note: what to know about its weights.
    """

    name: str
    build: Callable[[int], LayerStack]
    scores: str
    about: str
    scaling: InputScaling = IMAGENET
    left_out: tuple[str, ...] = ()
    shipped: str = ""
    note: str = ""


_RESNET = (
    "Unlike in the authors' text, the 3x3 convolution of a block has the stride where the image shrinks, and pool1 has "
    "a border of 1."
)
_SMALL_RESNET = "Unlike in the authors' texts, which are those of deeper networks, pool1 has a border of 1."
_ALEXNET = "Unlike AlexNet of 2012, it has 64 filters in conv1, no groups and no LRN."
_GOOGLENET = (
    "Unlike Caffe's, it has BatchNorm behind each convolution, 3x3 convolutions in the layers called 5x5, windows of "
    "2x2 in pool4, and no LRN."
)
_TRANSFORM_INPUT = (
    "the input is that of torchvision's own weights, which have transform_input=True: pixels from -1 to 1. Weights "
    "that were trained without it, by googlenet(weights=None), give wrong answers here"
)


def _models() -> dict[str, TorchvisionModel]:
    """Return all networks by name."""
    found = [
        TorchvisionModel(
            f"resnet{depth}",
            partial(build_resnet, depth),
            "fc",
            _RESNET if depth >= 50 else _SMALL_RESNET,
        )
        for depth in BLOCKS
    ]
    for depth in CONVOLUTIONS:
        shipped = f"vgg{depth}" if depth == 16 else ""
        build = partial(build_vgg, depth)
        found.append(TorchvisionModel(f"vgg{depth}", partial(build, False), "classifier.6", "", shipped=shipped))
        found.append(
            TorchvisionModel(
                f"vgg{depth}_bn", partial(build, True), "classifier.6", "It has BatchNorm, unlike the authors'."
            )
        )
    found.append(TorchvisionModel("alexnet", build_alexnet, "classifier.6", _ALEXNET))
    found.append(
        TorchvisionModel("googlenet", build_googlenet, "fc", _GOOGLENET, HALF, SIDE_CLASSIFIERS, note=_TRANSFORM_INPUT)
    )
    return {model.name: model for model in found}


MODELS = _models()
"""Name in ``torchvision.models`` → network."""


def model_of(origin: str) -> TorchvisionModel:
    """Return the network that ``--from`` names, as in ``torchvision:resnet50``.

    Raises:
        UsageError: it names none of MODELS.
    """
    source, colon, name = origin.partition(":")
    if source != SOURCE or not colon:
        raise UsageError(f'--from takes {SOURCE}:NAME, for instance {SOURCE}:resnet50, found "{origin}"')
    if name not in MODELS:
        hint = did_you_mean(name, MODELS, closely=True)
        raise UsageError(f'--from {origin}: bpt does not convert "{name}"{hint} (known: {", ".join(MODELS)})')
    return MODELS[name]
