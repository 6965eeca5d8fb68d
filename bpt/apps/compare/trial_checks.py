"""What ``bpt compare`` checks before the first run: the settings of all trials, and the start of the ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bpt.base.errors import BptError, UserError
from bpt.base.violation import Violation
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import SolverSource
from bpt.nn.net_graph import build_graph_of
from bpt.train.rules.violations import violations, violations_of_net, violations_of_ranks

_PATIENCE = 60.0  # seconds for a start of ranks that do nothing


def check_trials(trials: Sequence[tuple[str, SolverSource]], ranks: int) -> None:
    """Refuse trials that cannot run on ``ranks`` ranks; the error lists all reasons, with the trials that have them.

    Args:
        trials: name and solver of each trial, with its settings applied.
        ranks: the number of ranks of each run.

    Raises:
        UserError: a trial cannot run.
    """
    named: dict[str, list[str]] = {}
    for name, source in trials:
        plan = resolve(source)
        for violation in _violations(plan, ranks):
            names = named.setdefault(str(violation.error(plan.origin)), [])
            names += [name] * (name not in names)
    if named:
        lines = [
            f"{message} ({', '.join(names)})" if len(names) < len(trials) else message
            for message, names in named.items()
        ]
        raise UserError("\n".join(lines))


def _violations(plan: RunPlan, ranks: int) -> Iterator[Violation]:
    found = [*violations(plan), *violations_of_ranks(plan, ranks)]
    yield from found
    if found or plan.is_outer or plan.parallel_param.auto:
        return
    try:
        graph, *tests = (build_graph_of(net) for net in (plan.train, *plan.tests))
    except BptError:  # the run reports it; a launcher may start it on hosts that have the data
        return
    yield from violations_of_net(plan, graph, tests, ranks)


def check_mpirun(launcher: Sequence[str]) -> None:
    """Start ranks that do nothing, and refuse a start for which mpirun needs further flags.

    Args:
        launcher: the words that start the ranks. Only those of mpirun are tried.

    Raises:
        UserError: mpirun has too few slots, or does not run as root.
    """
    if not launcher or Path(launcher[0]).name != "mpirun":
        return
    try:
        tried = subprocess.run(
            [*launcher, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # the runs report it
        return
    if tried.returncode and (why := missing_flag(tried.stdout.decode(errors="replace").splitlines())):
        raise UserError(why)


def missing_flag(lines: Sequence[str]) -> str:
    """Return which flag mpirun needs, by the lines that it printed; "" if they ask for none."""
    if any("allow-run-as-root" in line for line in lines):
        return "mpirun refuses to run as root; use another account, or add --mpirun=--allow-run-as-root"
    if any("not enough slots" in line for line in lines):
        return "there are fewer cores than ranks; add --mpirun=--oversubscribe"
    return ""
