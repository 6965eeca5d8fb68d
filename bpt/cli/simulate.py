"""``bpt simulate``: predict a run of the outer layer on a cluster that a file describes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bpt.base.errors import UsageError
from bpt.cli.options import Parser, add_shape, add_solver, add_state, need, need_one_process, plan_of, positive

if TYPE_CHECKING:
    from bpt.apps.commands.job import Job

HELP = "predict a run of BPT-CNN's outer layer on a cluster"
DESCRIPTION = """\
Simulates a run with exchange: SGWU, AGWU or ASGD on a virtual clock. The code that divides samples and updates weights
is that of a real run. A file describes the nodes, their links and the server. One core simulates a cluster of 10,000
nodes, or one where nodes slow down or fail, in seconds. It trains nothing; each accuracy counts as 1. It shows how long
the run takes, how long nodes compute, wait and idle, how samples are divided, how stale updates are, and how many bytes
are sent.

  bpt simulate --solver prototxt/lenet/solver.prototxt --cluster prototxt/clusters/three_unlike.prototxt \\
               --set 'parallel_param { exchange: AGWU balance: IDPA }'
  bpt simulate --solver S --cluster C --strategies all                     SGWU or AGWU, with UDPA or IDPA
  bpt simulate --solver S --cluster C --samples 600000 --shape 3x224x224   without the data

A cluster file gives the speeds of the nodes (samples_per_second, or gflops):

  node { name: "new" count: 4 samples_per_second: 900 noise: 0.05 bandwidth: 1000 latency: 0.0002 }
  node { name: "old" samples_per_second: 250 change { at: 60 factor: 0.5 } }    # half as fast after a minute
  server { bandwidth: 10000 update_rate: 2000 }

bandwidth is in Mbit/s, latency in seconds, update_rate in MB/s. docs/simulate.md explains all fields.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt simulate``."""
    add_solver(parser)
    parser.flag("cluster", "the cluster's text file", metavar="FILE", default="")
    parser.flag("samples", "training samples; default: those of the data set", metavar="N", type=positive, default=0)
    add_shape(parser, "; needs --samples")
    parser.flag(
        "strategies",
        "compare these instead of what the solver says: SGWU+UDPA, AGWU+IDPA, ASGD+UDPA, ...; all: SGWU and AGWU with "
        "UDPA (balance: UNIFORM) and IDPA",
        metavar="all|A+B[,A+B...]",
        default="",
    )
    parser.flag("csv", "write a row for each strategy to this file", metavar="FILE", default="")
    parser.flag("nodes", "write a row for each node to this file, as CSV", metavar="FILE", default="")
    parser.flag("png", "draw a timeline of each node to this file (.png or .svg)", metavar="FILE", default="")
    add_state(parser)


def run(arguments: argparse.Namespace, job: Job) -> None:
    """Run ``bpt simulate``: predict a run of the outer layer on a cluster."""
    need(arguments, "solver", "what to train")
    if not arguments.cluster:
        raise UsageError("bpt simulate needs --cluster FILE: a text with the nodes; prototxt/clusters has examples")
    need_one_process(arguments, job)
    if arguments.shape and not arguments.samples:
        raise UsageError("--shape replaces the data set, so it needs --samples: the number of training samples")

    # Imported here so that --help does not wait for torch.
    from bpt.base.atomic import check_place
    from bpt.perf.simulate.simulation import simulate_solver, strategies_of
    from bpt.perf.simulate.simulation_report import (
        draw,
        lines,
        node_rows,
        strategy_rows,
        write_csv,
    )
    from bpt.train.outer.report.style import check_figure

    strategies = strategies_of(arguments.strategies)
    if arguments.png:
        check_figure("png", arguments.png)
    for path in filter(None, (arguments.csv, arguments.nodes)):
        check_place(path)
    plan = plan_of(arguments)
    simulated = simulate_solver(plan, arguments.cluster, strategies, arguments.samples, arguments.shape)
    for remark in simulated.remarks:
        print(f"warning: {remark}", file=sys.stderr)
    for line in lines(simulated):
        print(line)
    if arguments.csv:
        write_csv(arguments.csv, strategy_rows(simulated))
    if arguments.nodes:
        write_csv(arguments.nodes, node_rows(simulated))
    if arguments.png:
        draw(arguments.png, simulated)
