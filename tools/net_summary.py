#!/usr/bin/env python3
"""Show the layers of a network: types, shapes of tops, parameters, floating-point operations and memory.

    tools/net_summary.py prototxt/lenet/train_val.prototxt
    tools/net_summary.py prototxt/googlenet/deploy.prototxt --batch_size 32
    tools/net_summary.py prototxt/alexnet/train_val.prototxt --phase TEST --csv

Operations are those of a forward pass of the batch; a multiply-add counts as two. Blobs of layers that work in place,
and of Flatten and Split, take no memory of their own. With --csv numbers are plain: operations and bytes. Without the
data set, shapes follow from the text, or from --shape.

Exit status: 0 done; 1 failed; 2 the command line or the network's text is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli import summary
from bpt.cli.options import Parser
from bpt.cli.tool import run_tool


def make_parser() -> Parser:
    parser = Parser(prog="net_summary.py", description=__doc__)
    parser.add_argument("net", metavar="NET_PROTO", help="the network's text")
    summary.add_table(parser)
    parser.switch("csv", "write CSV")
    return parser


def show(arguments: argparse.Namespace) -> None:
    summary.show(arguments, arguments.net)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), show, words)


if __name__ == "__main__":
    sys.exit(main())
