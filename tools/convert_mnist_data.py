#!/usr/bin/env python3
"""Write a pair of MNIST's files as an LMDB for a Data layer.

    tools/convert_mnist_data.py raw/train-images-idx3-ubyte raw/train-labels-idx1-ubyte data/mnist/train_lmdb
    tools/convert_mnist_data.py raw/t10k-images-idx3-ubyte.gz raw/t10k-labels-idx1-ubyte.gz data/mnist/test_lmdb

Files that end in .gz are unpacked. Any set in this format will do, such as Fashion-MNIST. scripts/get_mnist.sh fetches
MNIST and converts it.

Exit status: 0 done; 1 DB_FILE could not be written; 2 the command line or a file is wrong, or DB_FILE exists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli.options import Parser
from bpt.cli.tool import check_backend, run_tool
from bpt.data.mnist_cifar10 import convert_mnist


def make_parser() -> Parser:
    parser = Parser(prog="convert_mnist_data.py", description=__doc__)
    parser.add_argument("images", metavar="IMAGE_FILE", help="an IDX file of images")
    parser.add_argument("labels", metavar="LABEL_FILE", help="the IDX file of their labels")
    parser.add_argument("database", metavar="DB_FILE", help="the LMDB to make")
    parser.flag("backend", "lmdb, which is the default", metavar="NAME", default="lmdb")
    return parser


def convert(arguments: argparse.Namespace) -> None:
    check_backend(arguments.backend)
    count = convert_mnist(arguments.images, arguments.labels, arguments.database)
    print(f"{arguments.database}: {count} image{'s' * (count != 1)}")


def main(words: Sequence[str] | None = None) -> int:
    """The exit status; see the text above."""
    return run_tool(make_parser(), convert, words)


if __name__ == "__main__":
    sys.exit(main())
