"""Converters of data sets, as commands of ``bpt convert`` and, under Caffe's names, as programs in ``tools/``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, check_backend, whole

if TYPE_CHECKING:
    from bpt.data.imageset import ImageConversion

_IMAGES_EXIT_STATUS = """\
Exit status: 0 done; 1 failed, or images were left out; 2 the command line or LISTFILE is wrong, no image is readable,
or DB_NAME exists."""


@dataclass(frozen=True)
class Converter:
    """A command of ``bpt convert``, and a program of Caffe.

    Attributes:
        help: the short help, one line.
        about: the long help; "PROGRAM" stands for what the user types.
        add_arguments: adds the flags to a parser.
        run: converts, and returns the exit status.
    """

    help: str
    about: str
    add_arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]

    def description(self, program: str) -> str:
        """Return the text for ``--help`` if the user types ``program``."""
        return self.about.replace("PROGRAM", program)

    def tool_parser(self, file: str) -> Parser:
        """Return the parser of the program ``file`` in ``tools/``."""
        name = Path(file).name
        parser = Parser(prog=name, description=self.description(f"tools/{name}"))
        self.add_arguments(parser)
        return parser


def _report(line: str) -> None:
    print(line, file=sys.stderr)


def _add_backend(parser: Parser) -> None:
    parser.flag("backend", "the database; only lmdb, the default", metavar="NAME", default="lmdb")


def _add_images(parser: Parser, line: str) -> None:
    """Add the flags of a list of images; ``line`` says what a line of the list contains."""
    parser.add_argument("root", metavar="ROOTFOLDER/", help="a text to put before each path of the list")
    parser.add_argument("list", metavar="LISTFILE", help=f"a line for each image: {line}")
    parser.add_argument("database", metavar="DB_NAME", help="the LMDB to make")
    parser.switch("gray", "store one channel")
    parser.switch("shuffle", "store the images in random order; the order is the same in every run")
    _add_backend(parser)
    parser.flag("resize_width", "resize images to this width; 0 keeps the width", metavar="N", type=whole, default=0)
    parser.flag("resize_height", "resize images to this height; 0 keeps the height", metavar="N", type=whole, default=0)
    parser.switch("check_size", "refuse images whose size differs from the first image's")
    parser.switch("encoded", "store image files instead of pixels")
    help = "the format for --encoded: png, jpg, ...; default: each file's own"
    parser.flag("encode_type", help, metavar="END", default="")


def _conversion(arguments: argparse.Namespace, **sides: int) -> ImageConversion:
    """Return the conversion that the flags of ``_add_images`` describe.

    Args:
        arguments: the parsed command line.
        sides: ``min_dim`` and ``max_dim``, if the command has these flags.
    """
    from bpt.data.imageset import ImageConversion

    check_backend(arguments.backend)
    return ImageConversion(
        grey=arguments.gray,
        height=arguments.resize_height,
        width=arguments.resize_width,
        encoded=arguments.encoded,
        encode_type=arguments.encode_type,
        check_size=arguments.check_size,
        shuffle=arguments.shuffle,
        **sides,
    )


def _report_images(database: str, written: int, left_out: int) -> int:
    note = f"; {left_out} could not be read" if left_out else ""
    print(f"{database}: {written} image{'s' * (written != 1)}{note}")
    return 1 if left_out else 0


def _imageset(arguments: argparse.Namespace) -> int:
    from bpt.data.imageset import convert_imageset

    conversion = _conversion(arguments)
    counts = convert_imageset(arguments.root, arguments.list, arguments.database, conversion, _report)
    return _report_images(arguments.database, *counts)


IMAGESET = Converter(
    "convert a list of image files to an LMDB",
    f"""\
Write the image files of a list to an LMDB for a Data layer.

    PROGRAM --shuffle --resize_height 256 --resize_width 256 images/ train.txt data/train_lmdb

LISTFILE has a line for each image: its path, a space, its label (a whole number). The program puts ROOTFOLDER/ before
each path without changing it, so it must end with a slash. Color images have the channels blue, green, red, as in
Caffe. The keys are 00000000_path, 00000001_path and so on, so that records keep the order of the list.

--encoded stores files instead of pixels. This is smaller, but each file is decoded at every read. A file that has the
wanted format and size is stored unchanged.

The program reports an unreadable image and leaves it out. It writes the LMDB, and the exit status is 1. It makes
missing folders of DB_NAME. It does not write LevelDB: an LMDB holds the same records, and the network says
backend: LMDB.

{_IMAGES_EXIT_STATUS}
""",
    lambda parser: _add_images(parser, "path and label"),
    _imageset,
)


def _add_annoset(parser: Parser) -> None:
    _add_images(parser, "path, and path of its annotation")
    parser.flag("anno_type", "detection (the default) or classification", metavar="NAME", default="detection")
    parser.flag(
        "label_type", "the format of the annotations: xml (the default), json or txt", metavar="END", default="xml"
    )
    parser.flag("label_map_file", "the LabelMap: names of classes and their labels", metavar="FILE", default="")
    parser.switch("check_label", "refuse a label map with one label for two names")
    parser.flag("min_dim", "enlarge images whose shorter side is less", metavar="N", type=whole, default=0)
    parser.flag("max_dim", "shrink images whose longer side is more", metavar="N", type=whole, default=0)


def _annoset(arguments: argparse.Namespace) -> int:
    from bpt.data.annoset import Annotations, convert_annoset

    conversion = _conversion(arguments, min_dim=arguments.min_dim, max_dim=arguments.max_dim)
    annotations = Annotations(
        arguments.anno_type, arguments.label_type, arguments.label_map_file, arguments.check_label
    )
    counts = convert_annoset(arguments.root, arguments.list, arguments.database, conversion, annotations, _report)
    return _report_images(arguments.database, *counts)


ANNOSET = Converter(
    "convert a list of images and their objects to an LMDB",
    f"""\
Write the image files of a list, and the objects in them, to an LMDB for an AnnotatedData layer (SSD's).

    PROGRAM --label_map_file labelmap.prototxt --encoded voc/ trainval.txt data/trainval_lmdb

LISTFILE has a line for each image: its path, a space, and the path of its annotation. The program puts ROOTFOLDER/
before both paths. --label_type says in which format the annotations are:

  xml    PASCAL VOC's: object {{ name, difficult, bndbox {{ xmin, ymin, xmax, ymax }} }} in pixels
  json   COCO's as SSD's scripts split it: {{"image": {{"height": H, "width": W}}, "annotation": [{{"category_id": 1,
         "bbox": [x, y, width, height], "iscrowd": 0}}]}}
  txt    a line "label xmin ymin xmax ymax" for each object, in pixels

A LabelMap, a text of item {{ name: "cat" label: 1 }}, gives the classes numbers; txt contains numbers. The LMDB holds
boxes as fractions of the image. With --anno_type classification, each path in LISTFILE is followed by a label, which
the LMDB holds.

The program reports an image that it cannot read, or whose annotation it cannot read, and leaves it out. It stops at a
class that the label map does not name. Everything else is as in "bpt convert imageset".

{_IMAGES_EXIT_STATUS}
""",
    _add_annoset,
    _annoset,
)


def _add_mnist(parser: Parser) -> None:
    parser.add_argument("images", metavar="IMAGE_FILE", help="an IDX file of images")
    parser.add_argument("labels", metavar="LABEL_FILE", help="the IDX file of their labels")
    parser.add_argument("database", metavar="DB_FILE", help="the LMDB to make")
    _add_backend(parser)


def _mnist(arguments: argparse.Namespace) -> int:
    from bpt.data.mnist_cifar10 import convert_mnist

    check_backend(arguments.backend)
    count = convert_mnist(arguments.images, arguments.labels, arguments.database)
    return _report_images(arguments.database, count, 0)


MNIST = Converter(
    "convert MNIST's files, and others of the format, to an LMDB",
    """\
Write a pair of MNIST's files to an LMDB for a Data layer.

    PROGRAM raw/train-images-idx3-ubyte raw/train-labels-idx1-ubyte data/mnist/train_lmdb
    PROGRAM raw/t10k-images-idx3-ubyte.gz raw/t10k-labels-idx1-ubyte.gz data/mnist/test_lmdb

The program unpacks files that end in .gz. It accepts any set in this format, such as Fashion-MNIST.
scripts/get_mnist.sh fetches MNIST and converts it.

Exit status: 0 done; 1 DB_FILE could not be written; 2 the command line or a file is wrong, or DB_FILE exists.
""",
    _add_mnist,
    _mnist,
)


def _add_cifar(parser: Parser) -> None:
    parser.add_argument("source", metavar="INPUT_FOLDER", type=Path, help="the folder of the six .bin files")
    parser.add_argument("target", metavar="OUTPUT_FOLDER", type=Path, help="the folder for the LMDBs")
    help = "the database; only lmdb, the default"
    parser.add_argument("backend", metavar="DB_TYPE", nargs="?", default="lmdb", help=help)


def _cifar(arguments: argparse.Namespace) -> int:
    from bpt.data.mnist_cifar10 import convert_cifar10

    check_backend(arguments.backend, "DB_TYPE")
    for path, count in convert_cifar10(arguments.source, arguments.target):
        _report_images(str(path), count, 0)
    return 0


CIFAR = Converter(
    "convert CIFAR-10's files to LMDBs",
    """\
Write the binary version of CIFAR-10 to LMDBs for Data layers.

    PROGRAM raw/cifar-10-batches-bin data/cifar10 lmdb

The program reads data_batch_1.bin ... data_batch_5.bin and test_batch.bin from INPUT_FOLDER, and makes
cifar10_train_lmdb and cifar10_test_lmdb in OUTPUT_FOLDER. The channels stay red, green, blue, as in Caffe's converter.
scripts/get_cifar10.sh fetches CIFAR-10, converts it and computes its mean.

Exit status: 0 done; 1 an LMDB could not be written; 2 the command line or a file is wrong, or an LMDB exists.
""",
    _add_cifar,
    _cifar,
)


def _add_mean(parser: Parser) -> None:
    parser.add_argument("database", metavar="INPUT_DB", help="the LMDB to read")
    parser.add_argument("mean_file", metavar="OUTPUT_FILE", nargs="?", default="", help="the mean image to write")
    _add_backend(parser)


def _mean(arguments: argparse.Namespace) -> int:
    from bpt.apps.convert.image_mean import compute_image_mean

    check_backend(arguments.backend)
    compute_image_mean(arguments.database, arguments.mean_file, print)
    return 0


MEAN = Converter(
    "compute the mean image of an LMDB",
    """\
Compute the mean image of an LMDB, for transform_param { mean_file: ... }.

    PROGRAM data/train_lmdb data/mean.binaryproto

The program prints the mean of each channel, for transform_param { mean_value: ... }. With OUTPUT_FILE it also writes
the mean image, in the same format as Caffe's program of this name. All images must have one size.

Exit status: 0 done; 1 a record is no image or of another size, or OUTPUT_FILE is not writable; 2 the command line
is wrong, INPUT_DB is no LMDB, or OUTPUT_FILE's folder is missing.
""",
    _add_mean,
    _mean,
)

CONVERTERS = {"imageset": IMAGESET, "annoset": ANNOSET, "mnist": MNIST, "cifar": CIFAR, "mean": MEAN}
"""Name of a command of ``bpt convert`` → what it does."""
