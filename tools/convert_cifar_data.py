#!/usr/bin/env python3
"""Write the binary version of CIFAR-10 as LMDBs for Data layers.

    tools/convert_cifar_data.py raw/cifar-10-batches-bin data/cifar10 lmdb

reads data_batch_1.bin ... data_batch_5.bin and test_batch.bin from INPUT_FOLDER, and makes cifar10_train_lmdb and
cifar10_test_lmdb in OUTPUT_FOLDER. The channels stay red, green, blue, as Caffe's own converter leaves them.
scripts/get_cifar10.sh fetches CIFAR-10, converts it and computes its mean.

Exit status: 0 done; 1 an LMDB could not be written; 2 the command line or a file is wrong, or an LMDB exists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bpt.cli.options import Parser
from bpt.cli.tool import check_backend, run_tool
from bpt.data.mnist_cifar10 import convert_cifar10


def make_parser() -> Parser:
    parser = Parser(prog="convert_cifar_data.py", description=__doc__)
    parser.add_argument("source", metavar="INPUT_FOLDER", type=Path, help="folder of the six .bin files")
    parser.add_argument("target", metavar="OUTPUT_FOLDER", type=Path, help="where to put the LMDBs")
    parser.add_argument("backend", metavar="DB_TYPE", nargs="?", default="lmdb", help="lmdb, which is the default")
    return parser


def convert(arguments: argparse.Namespace) -> None:
    check_backend(arguments.backend, "DB_TYPE")
    for path, count in convert_cifar10(arguments.source, arguments.target):
        print(f"{path}: {count} image{'s' * (count != 1)}")


def main(words: Sequence[str] | None = None) -> int:
    """The exit status; see the text above."""
    return run_tool(make_parser(), convert, words)


if __name__ == "__main__":
    sys.exit(main())
