"""``bpt new``: from a folder of pictures to a network that is ready to train."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, positive

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "make a network for a folder of pictures, ready to train"
DESCRIPTION = """\
Makes all that it takes to train a network on your own pictures, from a folder with a sub-folder for each class:

  bpt new photos/
  bpt new photos/ --output birds --size 96 --net resnet20

It decodes every picture, lists those that cannot be used, and leaves them out. It keeps a fifth of each class for
tests, unless the folder holds train/ and test/ (or val/). It writes the lists, the names of the classes, the network,
the solver, the deploy text and a README.md with the next commands, which it also prints.

Pictures may be of any size and of all formats that Pillow reads: color, gray, CMYK, with alpha. Of large ones it
writes small copies, from which training is faster. Nothing is overwritten.

  small       convolutions with BatchNorm, as many as suit the size; trains in a minute or two on a laptop
  resnet20    the residual network for CIFAR-10
  googlenet   for many pictures, or to start from published weights: bpt train --weights bvlc_googlenet.caffemodel
"""
NETS = ("small", "resnet20", "googlenet")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt new``."""
    parser.add_argument(
        "pictures", nargs="?", default="", metavar="PICTURES", help="a folder with a sub-folder a class"
    )
    parser.flag("output", "the folder to write; default: PICTURES_net, here", metavar="DIR", default="")
    parser.flag(
        "size",
        "side of the network's input in pixels; default: 64, of resnet20 32, of googlenet 224",
        metavar="N",
        type=positive,
        default=0,
    )
    parser.flag("net", f"the network: {', '.join(NETS)}; default small", choices=NETS, default="small", metavar="NAME")
    parser.flag("seed", "of the division and of the training; default 1", metavar="N", type=positive, default=1)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt new``: make a network for a folder of pictures."""
    if not arguments.pictures:
        raise UsageError("bpt new needs a folder of pictures, with a sub-folder for each class: bpt new photos/")
    if job.world.size > 1:
        raise UsageError("bpt new runs on one process; leave mpirun out")

    # Imported here so that --help does not wait for torch.
    from bpt.apps.new.starter_files import NewRequest, make_starter

    job.begin()
    request = NewRequest(arguments.pictures, arguments.output, arguments.net, arguments.size, arguments.seed)
    for line in make_starter(request):
        print(line, flush=True)
