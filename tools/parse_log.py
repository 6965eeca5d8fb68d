#!/usr/bin/env python3
"""Write the numbers of a training log, bpt's or Caffe's, as CSV.

    bpt train --solver prototxt/lenet/solver.prototxt 2> lenet.log
    tools/parse_log.py lenet.log .

writes lenet.log.train and lenet.log.test into OUTPUT_DIR. Columns: NumIters, Seconds since training began,
LearningRate, and each output of the net. The learning rate is that of the row's own iteration, which the log shows
after the outputs; Caffe's program of this name gives each row the rate of the row before.

Exit status: 0 done; 1 a table could not be written; 2 the command line is wrong, OUTPUT_DIR is missing, or LOGFILE is
no log of training.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bpt.apps.plot.training_log import read_log, write_tables
from bpt.base.atomic import check_place
from bpt.base.errors import UsageError
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    parser = Parser(prog="parse_log.py", description=__doc__)
    parser.add_argument("log", metavar="LOGFILE", help="what bpt train or caffe train wrote to stderr")
    parser.add_argument("folder", metavar="OUTPUT_DIR", help="the folder for the tables")
    parser.flag("delimiter", "character between columns; default a comma", metavar="C", default=",")
    parser.switch("verbose", "name the files that were written")
    return parser


def parse(arguments: argparse.Namespace) -> None:
    delimiter = arguments.delimiter.replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise UsageError(f'--delimiter takes one character, found "{arguments.delimiter}"')
    check_place(os.path.join(arguments.folder, os.path.basename(arguments.log)))
    for path in write_tables(read_log(arguments.log), arguments.log, arguments.folder, delimiter):
        if arguments.verbose:
            print(f"Wrote {path}")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), parse, words)


if __name__ == "__main__":
    sys.exit(main())
