#!/usr/bin/env python3
"""Run a trained net on its data, and write the blobs that it computes as LMDBs.

    tools/extract_features.py lenet.caffemodel lenet/train_val.prototxt ip1 features_lmdb 4 lmdb
    tools/extract_features.py a.caffemodel,b.caffemodel net.prototxt ip1,prob ip1_lmdb,prob_lmdb 10 lmdb GPU 0

The TEST net of NET runs on NUM_BATCHES batches of its own data layer. Each sample of a blob becomes a record: a Datum
of floats, channels x height x width. Its key is the sample's number in ten digits: 0000000000, 0000000001, ...

Exit status: 0 done; 1 failed while running; 2 the command line or a file is wrong, or a database exists or its
folder is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.apps.commands.features import extract_features
from bpt.base.errors import UsageError
from bpt.cli.options import Parser, add_missing_weights, check_backend, missing_weights_of, positive, words
from bpt.cli.tool import run_tool
from bpt.system.device import choose_device


def make_parser() -> Parser:
    parser = Parser(prog="extract_features.py", description=__doc__)
    parser.add_argument(
        "weights", metavar="WEIGHTS", help="the trained model; if several, a,b, have a layer, the last one counts"
    )
    parser.add_argument("net", metavar="NET", help="the network's text, with a data layer in its TEST phase")
    parser.add_argument("blobs", metavar="BLOB1[,BLOB2]", help="blobs to write")
    parser.add_argument("databases", metavar="DB1[,DB2]", help="an LMDB to make for each of them")
    parser.add_argument("batches", metavar="NUM_BATCHES", type=positive, help="batches to run")
    parser.add_argument("backend", metavar="DB_TYPE", help="lmdb")
    parser.add_argument("mode", metavar="CPU/GPU", nargs="?", default="CPU", help="where to compute; default CPU")
    parser.add_argument("device", metavar="DEVICE_ID", nargs="?", default="0", help="which GPU; default 0")
    add_missing_weights(parser)
    return parser


def extract(arguments: argparse.Namespace) -> None:
    check_backend(arguments.backend, "DB_TYPE")
    if arguments.mode not in ("CPU", "GPU"):
        raise UsageError(f'the mode is CPU or GPU, found "{arguments.mode}"')
    device = choose_device(gpu=arguments.device.removeprefix("DEVICE_ID=") if arguments.mode == "GPU" else "")
    blobs, databases = words(arguments.blobs), words(arguments.databases)
    counts = extract_features(
        words(arguments.weights),
        arguments.net,
        blobs,
        databases,
        arguments.batches,
        device,
        lambda line: print(line, file=sys.stderr),
        missing_weights_of(arguments),
    )
    for database, blob, count in zip(databases, blobs, counts, strict=True):
        print(f"{database}: {count} record{'s' * (count != 1)} of {blob}")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_tool(make_parser(), extract, words)


if __name__ == "__main__":
    sys.exit(main())
