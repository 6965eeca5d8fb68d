"""``bpt device_query``: what this machine can compute on."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_gpu

HELP = "show what this machine can compute on"
DESCRIPTION = """\
Lists the CUDA devices, or the one of --gpu, and the CPU with the number of threads that bpt uses
(OMP_NUM_THREADS sets it).
"""


def add_arguments(parser: Parser) -> None:
    add_gpu(parser, default="all, and the CPU")


def run(arguments: argparse.Namespace) -> None:
    # Imported here so that --help does not wait for torch.
    from bpt.device import choose_device, describe_devices
    from bpt.report.log import start_logging

    start_logging()
    only = choose_device(gpu=arguments.gpu) if arguments.gpu not in ("", "all") else None
    for line in describe_devices(only):
        print(line)
