"""Codecs on slow links: what of the exchange of gradients is left to wait for, and what accuracy is lost.

Hosts of scripts/testbed, of equal parts of the cores, train networks with images made here; codecs take turns in a job:

    exposed    seconds of an iteration that the exchange adds; what backward hides is not in it (`bpt time`: exchange)
    x NONE     that, of the same without a codec
    10 Gbit/s  a forecast: the line through the times at the two fastest links that were measured, over seconds a bit;
               a codec's own time stays, the link's goes down

With --accuracy lenet on the digits, and the quick CIFAR-10 network on images made by a formula, train on 2 ranks of
this machine, whose gradients go by the codec all the same (links: ALL), from several seeds.

A row is written to the CSV as soon as it is there. Started again, the bench goes on with what is missing; remove the
files to measure anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.benches.codecs import accuracy, speed
from scripts.benches.harness.arguments import add_nets, add_output, at_least, explain, some_of
from scripts.benches.harness.launch import ROOT, JobError
from scripts.benches.harness.testbed import end_by_signals

HELP = "codecs at 100 Mbit/s and 1 Gbit/s on scripts/testbed (Linux, root), 10 by forecast; --accuracy: what is lost"


def hosts(text: str) -> list[int]:
    """Numbers of hosts, by commas, for argparse."""
    return sorted({at_least(2)(word) for word in text.split(",")})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    add_nets(parser, speed.NETS, speed.NETS)
    parser.add_argument("--hosts", type=hosts, default="2,4", help="how many (default %(default)s)")
    parser.add_argument("--links", default="1gbit,100mbit", help="of each host, by commas (default %(default)s)")
    codecs = some_of(speed.CODECS, "codec")
    parser.add_argument("--codecs", type=codecs, default=",".join(speed.CODECS), help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="that a codec trains for (default %(default)s)")
    parser.add_argument("--accuracy", action="store_true", help="what is lost, instead of how long it takes")
    parser.add_argument("--seeds", type=at_least(1), default=3, help="of --accuracy (default %(default)s)")
    add_output(parser, ROOT / "bench" / "codecs", "CSV files")


def run(arguments: argparse.Namespace) -> None:
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        if arguments.accuracy:
            met = accuracy.measure(arguments.out / "accuracy.csv", arguments.codecs, arguments.seeds)
        else:
            end_by_signals()
            met = measure_speed(arguments)
    except JobError as error:
        sys.exit(f"error: {error}")
    if not met:
        sys.exit(1)


def measure_speed(arguments: argparse.Namespace) -> bool:
    """Measure what is missing, and print the table; whether the goals are met."""
    path: Path = arguments.out / "speed.csv"
    for number in arguments.hosts:
        for link in arguments.links.split(","):
            speed.measure(path, arguments.nets, number, link, arguments.codecs, arguments.seconds)
    cells = [cell for cell in speed.read(path) if cell.net in arguments.nets and cell.hosts in arguments.hosts]
    print(*speed.table(cells), sep="\n")
    missed = speed.missed(cells)
    print(*missed, sep="\n")
    return not missed
