#!/usr/bin/env python3
"""Compute the mean image of an LMDB, for transform_param { mean_file: ... }.

    tools/compute_image_mean.py data/train_lmdb data/mean.binaryproto

Prints the mean of each channel, for transform_param { mean_value: ... }; without OUTPUT_FILE that is all. All images
must have one size. The file is the one that Caffe's program of this name writes.

Exit status: 0 done; 1 a record is no image or of another size, or OUTPUT_FILE could not be written; 2 the command line
is wrong, INPUT_DB is no LMDB, or OUTPUT_FILE's folder is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli.options import Parser
from bpt.cli.tool import check_backend, run_tool
from bpt.commands.image_mean import compute_image_mean


def make_parser() -> Parser:
    parser = Parser(prog="compute_image_mean.py", description=__doc__)
    parser.add_argument("database", metavar="INPUT_DB", help="the LMDB to read")
    parser.add_argument("output", metavar="OUTPUT_FILE", nargs="?", default="", help="the mean image to write")
    parser.flag("backend", "lmdb, which is the default", metavar="NAME", default="lmdb")
    return parser


def compute(arguments: argparse.Namespace) -> None:
    check_backend(arguments.backend)
    compute_image_mean(arguments.database, arguments.output, print)


def main(words: Sequence[str] | None = None) -> int:
    """The exit status; see the text above."""
    return run_tool(make_parser(), compute, words)


if __name__ == "__main__":
    sys.exit(main())
