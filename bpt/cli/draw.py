"""``bpt draw``: draw a picture of a network."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_model, add_shape, add_state, need, need_one_process, positive, words

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "draw a network"
DESCRIPTION = """\
Draws a network as SVG, PNG or PDF. Each layer is a box in the colour of its kind. The box also shows the layer's
settings and the layers that work in place on its top. Each blob is an arrow, with its shape without the batch. A long
network continues in further columns.

  bpt draw --model prototxt/lenet/train_val.prototxt --output lenet.svg
  bpt draw --model prototxt/resnet20/train_val.prototxt --output resnet20.pdf --phase TEST
  bpt draw --model prototxt/googlenet/deploy.prototxt --output googlenet.png --rankdir LR --columns 3

The command does not need the data. Without them, the shapes follow from the crops or sizes in the text, or from
--shape. If both are missing, the picture has no shapes, and a line says why. tools/draw_net.py does the same with the
flags of Caffe's program of that name.
"""
DIRECTIONS = ("TB", "LR", "BT")
PHASES = ("TRAIN", "TEST", "ALL")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt draw``."""
    add_model(parser)
    parser.flag("output", "the picture: a file that ends in .svg, .png or .pdf", metavar="FILE", default="")
    add_drawing(parser, direction="TB", phase="TRAIN")
    add_state(parser)


def add_drawing(parser: Parser, direction: str, phase: str) -> None:
    """Add the flags that say how to draw a net; ``direction`` and ``phase`` are defaults."""
    parser.flag(
        "rankdir",
        f"direction of the blobs: TB (top to bottom), LR (left to right) or BT (bottom to top); default {direction}",
        choices=DIRECTIONS,
        default=direction,
        metavar="DIR",
    )
    help = f"the phase of the network: TRAIN, TEST, or ALL for both over each other; default {phase}"
    parser.flag("phase", help, choices=PHASES, default=phase, metavar="PHASE")
    parser.flag(
        "columns",
        "fold a long network into this number of columns (rows with LR); default: as many as fill a page",
        metavar="N",
        type=positive,
        default=0,
    )
    add_shape(parser)
    parser.add_argument(
        "-display_lrm",
        "--display_lrm",
        help="show the multipliers of each layer's learning rates",
        action="store_true",
        default=False,
    )


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt draw``: draw a network."""
    need(arguments, "model", "the network to draw")
    need(arguments, "output", "the picture to write")
    need_one_process(arguments, job)
    draw(arguments, arguments.model, arguments.output, arguments.level, words(arguments.stage))


def draw(arguments: argparse.Namespace, model: str, output: str, level: int = 0, stages: tuple[str, ...] = ()) -> None:
    """Draw a net as the flags of add_drawing say, and print the remarks about the picture."""
    # Imported here so that --help does not wait for torch.
    from bpt.apps.draw.net_drawing import DrawRequest, draw_net

    request = DrawRequest(
        model=model,
        output=output,
        phase=arguments.phase,
        direction=arguments.rankdir,
        columns=arguments.columns,
        rates=arguments.display_lrm,
        shape=arguments.shape,
        level=level,
        stages=stages,
    )
    for line in draw_net(request):
        print(line)
