"""Flags that bpt classify and bpt detect share: a trained network, and pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from bpt.cli.options import (
    Parser,
    add_gpu,
    add_labels,
    add_missing_weights,
    add_model,
    add_state,
    add_weights,
    missing_weights_of,
    need,
    weights_of,
    words,
)

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job
    from bpt.apps.pictures.named_pictures import NamedPicture
    from bpt.apps.pictures.picture_net import DamagedPictures

T = TypeVar("T")


def add_network(parser: Parser, pictures: str) -> None:
    """Add the flags of the network, and the argument of the pictures; ``pictures`` is its help."""
    add_model(parser)
    add_weights(parser, "the trained weights")
    add_missing_weights(parser)
    parser.add_argument("pictures", nargs="*", metavar="IMAGE|FOLDER|LIST.txt", help=pictures)
    add_labels(parser)


def add_how(parser: Parser) -> None:
    """Add the flags that say how pictures are prepared, where the net runs, and how results are printed."""
    parser.flag("json", "print a line of JSON for each picture", action="store_true")
    parser.flag("preprocessing", "a text that says how pictures are prepared; see above", metavar="FILE", default="")
    add_gpu(parser, default="the CPU")
    add_state(parser)


def loaded(arguments: argparse.Namespace, job: Job, load: Callable[..., T]) -> tuple[T, list[NamedPicture]]:
    """Return the network that ``load`` makes (``of`` of PictureClassifier or Detector), and the given pictures."""
    # Imported here so that --help does not wait for torch.
    from bpt.apps.pictures.named_pictures import pictures
    from bpt.apps.pictures.picture_net import BATCH
    from bpt.config.plan.nets import file_plan
    from bpt.config.proto import bpt_pb2 as pb

    device = job.begin(gpu=arguments.gpu)
    asked = pictures(arguments.pictures)
    network = load(
        file_plan(arguments.model, pb.TEST, arguments.level or 0, words(arguments.stage)),
        weights_of(arguments),
        device,
        min(len(asked), BATCH),
        labels=arguments.labels,
        preprocessing=arguments.preprocessing,
        missing=missing_weights_of(arguments),
    )
    return network, asked


def print_answers(asked: Sequence[NamedPicture], report: Callable[[DamagedPictures | None], Iterable[str]]) -> None:
    """Print the lines that ``report`` yields, and report each damaged picture when it is met.

    Raises:
        FileError: the only picture is damaged.
        RunError: some of several pictures are damaged.
    """
    from bpt.apps.pictures.picture_net import DamagedPictures

    damaged = DamagedPictures(lambda line: print(f"left out: {line}", file=sys.stderr, flush=True))
    for line in report(damaged if len(asked) > 1 else None):
        print(line, flush=True)
    damaged.raise_if_any(len(asked))


def check(arguments: argparse.Namespace) -> None:
    """Raise a UsageError if a required flag is missing."""
    need(arguments, "model", "the network's text")
    need(arguments, "weights", "the trained weights")
