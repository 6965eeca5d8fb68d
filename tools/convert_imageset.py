#!/usr/bin/env python3
"""Write image files, which a list names, as an LMDB for a Data layer.

    tools/convert_imageset.py --shuffle --resize_height 256 --resize_width 256 images/ train.txt data/train_lmdb

LISTFILE has a line for each image: its path, a space, its label (a whole number). ROOTFOLDER/ is put before each path
as it is, so it ends with a slash. Color images are stored with the channels blue, green, red, as Caffe does; keys are
00000000_path, 00000001_path and so on, so that records keep the order of the list.

--encoded stores files instead of pixels: smaller, but each is decoded whenever it is read. A file that already is of
the wanted format and size is stored as it is.

An image that cannot be read is told and left out; the exit status is 1 then, though the LMDB is there. Missing folders
of DB_NAME are made. LevelDB is not written: an LMDB holds the same records, and the network says backend: LMDB.

Exit status: 0 done; 1 failed, or images were left out; 2 the command line or LISTFILE is wrong, no image can
be read, or DB_NAME exists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bpt.cli.options import Parser, whole
from bpt.cli.tool import add_switch, check_backend, run_tool
from bpt.data.imageset import Wanted, convert_imageset


def make_parser() -> Parser:
    parser = Parser(prog="convert_imageset.py", description=__doc__)
    parser.add_argument("root", metavar="ROOTFOLDER/", help="put before each path of the list")
    parser.add_argument("list", metavar="LISTFILE", help="a line for each image: path and label")
    parser.add_argument("database", metavar="DB_NAME", help="the LMDB to make")
    add_switch(parser, "gray", "store one channel")
    add_switch(parser, "shuffle", "store the images in an order drawn by chance; it is the same in every run")
    parser.flag("backend", "lmdb, which is the default", metavar="NAME", default="lmdb")
    parser.flag("resize_width", "width that images are resized to; 0: they stay", metavar="N", type=whole, default=0)
    parser.flag("resize_height", "height that images are resized to; 0: they stay", metavar="N", type=whole, default=0)
    add_switch(parser, "check_size", "refuse images that are not of the size of the first")
    add_switch(parser, "encoded", "store image files instead of pixels")
    parser.flag("encode_type", "with --encoded: png, jpg, ...; default: what each file is", metavar="END", default="")
    return parser


def convert(arguments: argparse.Namespace) -> int:
    check_backend(arguments.backend)
    wanted = Wanted(
        grey=arguments.gray,
        height=arguments.resize_height,
        width=arguments.resize_width,
        encoded=arguments.encoded,
        encode_type=arguments.encode_type,
        check_size=arguments.check_size,
        shuffle=arguments.shuffle,
    )
    written, left_out = convert_imageset(
        arguments.root, arguments.list, arguments.database, wanted, lambda line: print(line, file=sys.stderr)
    )
    note = f"; {left_out} could not be read" if left_out else ""
    print(f"{arguments.database}: {written} image{'s' * (written != 1)}{note}")
    return 1 if left_out else 0


def main(words: Sequence[str] | None = None) -> int:
    """The exit status; see the text above."""
    return run_tool(make_parser(), convert, words)


if __name__ == "__main__":
    sys.exit(main())
