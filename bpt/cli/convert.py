"""``bpt convert``: convert weights from one format to another, and data sets to LMDBs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import RunError, UsageError
from bpt.cli.converters import CONVERTERS
from bpt.cli.options import Parser, need, need_one_process

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "convert weights between formats, and data sets to LMDBs"
DESCRIPTION = """\
Reads weights of any Caffe and writes them in the format that the end of the name says: .caffemodel, .h5 (Caffe's HDF5)
or .safetensors. In safetensors, blob 0 of layer "conv1" is called conv1/0. The command upgrades layers of the formats
of 2013 and 2014. NVIDIA's, Intel's and other Caffes gave some fields numbers of their own; these fields get the
numbers of bpt's schema. The command reads the written file back and compares it. It also copies the record of how
inputs are prepared (<snapshot_prefix>_preprocessing.prototxt), so that bpt classify finds it beside the new file.

  bpt convert --weights bvlc.caffemodel --output bvlc.h5
  bpt convert --weights old.caffemodel --output small.safetensors --raw FLOAT16
  bpt convert --weights nvidia.caffemodel --output plain.caffemodel

A .caffemodel holds single precision in Caffe's own way, which every Caffe reads. With --raw it holds numbers as
NVIDIA's Caffe stores them. --raw FLOAT16 takes half the space; NVIDIA's Caffe and bpt read it.

--from torchvision:NAME reads the weights of a network of torchvision, a state_dict that PyTorch saved. It writes
PREFIX.caffemodel with Caffe's usual layer names, PREFIX_deploy.prototxt with the same architecture, and
PREFIX_preprocessing.prototxt, so that bpt classify, explain and train --weights take them as they are. A folder, such
as models/, is an output, too. NAME is resnet18, 34, 50, 101 or 152, vgg11, 13, 16 or 19, each also with _bn, alexnet or
googlenet. Any number of classes fits. Without --weights, the package torchvision fetches its own.

  bpt convert --from torchvision:resnet50 --weights resnet50.pth --output models/

The command also converts data sets, as Caffe's programs do. "bpt convert imageset --help" explains the first of these:

  bpt convert imageset --resize_height 256 --resize_width 256 images/ train.txt data/train_lmdb
  bpt convert annoset --label_map_file labelmap.prototxt voc/ trainval.txt data/trainval_lmdb
  bpt convert mean data/train_lmdb data/mean.binaryproto
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt convert``."""
    help = "the file to read: a caffemodel, HDF5 or safetensors; with --from a state_dict of PyTorch"
    parser.flag("weights", help, metavar="FILE", default="")
    help = "the file to write: .caffemodel, .h5 or .safetensors; with --from also a folder, or the beginning of names"
    parser.flag("output", help, metavar="FILE", default="")
    help = "convert a network of torchvision, for instance torchvision:resnet50"
    parser.flag("from", help, metavar="torchvision:NAME", default="")
    parser.flag(
        "raw",
        "store numbers as NVIDIA's Caffe does: FLOAT or FLOAT16; in safetensors FLOAT16 is half precision",
        type=str.upper,
        choices=("FLOAT", "FLOAT16"),
        default="",
        metavar="TYPE",
    )
    parser.flag(
        "dialect",
        "the Caffe that wrote a caffemodel, if its fields can be read in two ways: BVLC, NVIDIA, INTEL or INTEL_1_0_5 "
        "(upper or lower case). INTEL_1_0_5 is Intel's 1.0.5 to 1.1.1a, where Pooling has other numbers. The command "
        "prints what it rewrites because of that",
        type=str.upper,
        choices=("BVLC", "NVIDIA", "INTEL", "INTEL_1_0_5"),
        default="",
        metavar="CAFFE",
    )
    data = parser.add_subparsers(dest="data", metavar="<data>", title="data sets", required=False)
    for name, converter in CONVERTERS.items():
        program = f"bpt convert {name}"
        one = data.add_parser(name, help=converter.help, description=converter.description(program))
        converter.add_arguments(one)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt convert``: convert weights to another format, or make an LMDB of a data set."""
    need_one_process(arguments, job)
    if arguments.data:
        for flag in ("weights", "output", "from", "raw", "dialect"):
            if getattr(arguments, flag):
                raise UsageError(f"--{flag} is for weights; bpt convert {arguments.data} has flags of its own")
        if CONVERTERS[arguments.data].run(arguments):
            raise RunError(
                "some images were left out: see above; repair them and convert again, or continue without them"
            )
        return
    if origin := getattr(arguments, "from"):
        _convert_torchvision(arguments, origin)
        return
    need(arguments, "weights", f"the weights to read; for data sets give one of {', '.join(CONVERTERS)}")
    need(arguments, "output", "the file to write")

    # Imported here so that --help does not wait for numpy.
    from bpt.apps.convert.conversion import convert
    from bpt.config.proto.dialect_reading import Dialect

    dialect = Dialect[arguments.dialect] if arguments.dialect else None
    for line in convert(arguments.weights, arguments.output, arguments.raw, dialect):
        print(line)


def _convert_torchvision(arguments: argparse.Namespace, origin: str) -> None:
    """Convert the network of torchvision that ``origin`` names."""
    need(arguments, "output", "a folder, or the beginning of the names of the files to write")
    if arguments.dialect:
        raise UsageError(f"--dialect {arguments.dialect}: no Caffe wrote the weights of {origin}; leave the flag out")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.convert.from_torchvision.torchvision_files import convert_torchvision

    for line in convert_torchvision(origin, arguments.weights, arguments.output, arguments.raw):
        print(line, flush=True)
