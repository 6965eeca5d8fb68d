"""``bpt new``: make a network that is ready to train from a folder of pictures."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, need_one_process, positive

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "make a network for a folder of pictures, ready to train"
DESCRIPTION = """\
Makes all files that you need to train a network on your own pictures. The folder has a sub-folder for each class:

  bpt new photos/
  bpt new photos/ --output birds --size 96 --net resnet20

It decodes every picture, lists those that cannot be used, and leaves them out. It keeps a fifth of each class for
tests, unless the folder holds train/ and test/ (or val/). It writes the lists, the names of the classes, the network,
the solver, the deploy text and a README.md with the next commands, which it also prints.

Pictures may be of any size and of all formats that Pillow reads: color, gray, CMYK, with alpha. It writes small copies
of large pictures, which make training faster. Nothing is overwritten.

  small       convolutions with BatchNorm, as many as suit the size; trains in a minute or two on a laptop
  resnet20    the residual network for CIFAR-10
  googlenet   for many pictures, or to start from published weights: bpt train --weights bvlc_googlenet.caffemodel
"""
NETS = ("small", "resnet20", "googlenet")


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt new``."""
    parser.add_argument(
        "pictures", nargs="?", default="", metavar="PICTURES", help="a folder with a sub-folder for each class"
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
    help = "the random seed of the training and of the division into training and test pictures; default 1"
    parser.flag("seed", help, metavar="N", type=positive, default=1)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt new``: make a network for a folder of pictures."""
    if not arguments.pictures:
        raise UsageError("bpt new needs a folder of pictures, with a sub-folder for each class: bpt new photos/")
    need_one_process(arguments, job)

    # Imported here so that --help does not wait for torch.
    from bpt.apps.new.starter_files import NewRequest, make_starter

    job.begin()
    request = NewRequest(arguments.pictures, arguments.output, arguments.net, arguments.size, arguments.seed)
    for line in make_starter(request):
        print(line, flush=True)
