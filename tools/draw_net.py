#!/usr/bin/env python3
"""Draw a network as SVG, PNG or PDF: its layers, and the blobs between them with their shapes.

    tools/draw_net.py prototxt/lenet/train_val.prototxt lenet.svg
    tools/draw_net.py prototxt/googlenet/train_val.prototxt googlenet.pdf --rankdir TB --phase TRAIN
    tools/draw_net.py prototxt/lenet/deploy.prototxt lenet.png --display_lrm

A box is a layer, in the colour of its kind, with the layers that work in place on its top. An arrow is a blob, with its
shape except the batch. Long networks are folded (--columns). The tool needs only matplotlib: pip install 'bpt[plot]'.
Without the data set, shapes follow from the text, or from --shape. bpt draw does the same.

Exit status: 0 done; 1 the picture could not be written; 2 the command line or the network's text is wrong, or
the picture's folder is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli.draw import add_drawing, draw
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    parser = Parser(prog="draw_net.py", description=__doc__)
    parser.add_argument("net", metavar="NET_PROTO", help="the network's text")
    parser.add_argument("output", metavar="OUTPUT_IMAGE", help="ends in .svg, .png or .pdf")
    add_drawing(parser, direction="LR", phase="ALL")
    return parser


def draw_net(arguments: argparse.Namespace) -> None:
    draw(arguments, arguments.net, arguments.output)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), draw_net, words)


if __name__ == "__main__":
    sys.exit(main())
