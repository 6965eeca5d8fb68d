"""``bpt compare``: train with several strategies in turn, and compare them in a table and a figure."""

from __future__ import annotations

import argparse

from bpt.cli.options import Parser, add_solver, need, positive

HELP = "train with several strategies in turn, and compare them"
DESCRIPTION = """\
Trains the same solver with several strategies, one after the other, from the same seed. It prints a table, and writes
it with a figure: accuracy against time, time of an iteration, waiting, and bytes sent.

  bpt compare --solver S --strategies DATA,CGDP,AGWU+IDPA --ranks 3 --output comparison
  bpt compare --solver S --try slow='base_lr: 0.001' --try fast='base_lr: 0.1' --output rates
  bpt compare --solver S --strategies DATA,RING --ranks 4 --mpirun=--oversubscribe --output four
  bpt compare --solver S --strategies DATA,RING --ranks 2 --launcher 'sudo scripts/testbed run --' --output bed

Strategies: DATA (ALLREDUCE), RING, TREE, CGDP, LOCAL; SGWU+UDPA, SGWU+IDPA, AGWU+UDPA, AGWU+IDPA, ASGD+UDPA, ASGD+IDPA
as in bpt simulate; MASTER_SLAVE and PEER with a shard on each rank; PIPELINE with a stage on each rank.

It starts mpirun itself, or what --launcher names. The folder gets comparison.csv, comparison.md, comparison.png, and a
folder for each run with its log, metrics and snapshots. If a run fails, its row tells why, the others continue, and the
exit status is 1.
"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of ``bpt compare``."""
    add_solver(parser)
    parser.flag("strategies", "the strategies to compare", metavar="A[,B...]", default="")
    help = "compare the solver with these settings, too, under a name of your own. May be given more than once"
    parser.flag("try", help, metavar="NAME=TEXT", action="append", default=[], dest="own")
    parser.flag("ranks", "ranks of each run; default %(default)s", metavar="N", type=positive, default=1)
    parser.flag("mpirun", "flags of mpirun, as in --mpirun='--hostfile hosts'", metavar="FLAGS", default="")
    help = "what starts the ranks in the place of mpirun, as in --launcher 'srun -n 4'; --ranks says how many"
    parser.flag("launcher", help, metavar="COMMAND", default="")
    parser.flag("output", "a folder that is new or empty", metavar="DIR", default="")


def run(arguments: argparse.Namespace) -> int:
    """Run ``bpt compare``: train with several strategies in turn. Return the exit status."""
    need(arguments, "solver", "what to train")
    need(arguments, "output", "a folder for the table, the figure and the runs")

    # Imported here so that --help does not wait for numpy.
    import shlex
    from pathlib import Path

    from bpt.apps.compare.strategy_comparison import StrategyComparison, launcher_of
    from bpt.apps.compare.trials import trials_of

    trials, output = trials_of(arguments.strategies, arguments.own), Path(arguments.output)
    launcher = launcher_of(arguments.ranks, shlex.split(arguments.mpirun), shlex.split(arguments.launcher))
    return StrategyComparison(arguments.solver, arguments.set, trials, arguments.ranks, launcher, output).run()
