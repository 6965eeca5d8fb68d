"""``bpt device_query``: show the devices of this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bpt.cli.options import Parser, add_gpu

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "show the devices of this machine"
DESCRIPTION = """\
Lists the CUDA devices, or the one of --gpu, and the CPU with the number of threads that bpt uses (OMP_NUM_THREADS sets
that number). Under mpirun, it shows the machine of the first rank; bpt doctor shows all machines.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt device_query``."""
    add_gpu(parser, default="all, and the CPU")


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt device_query``: print the devices of this machine."""
    if not job.is_first:
        return

    # Imported here so that --help does not wait for torch.
    from bpt.base.log import start_logging
    from bpt.system.device import choose_device, describe_devices

    start_logging()
    only = choose_device(gpu=arguments.gpu) if arguments.gpu not in ("", "all") else None
    for line in describe_devices(only):
        print(line)
