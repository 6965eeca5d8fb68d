"""Solvers with numbers that make no sense."""

from __future__ import annotations

from pathlib import Path

from bpt.base.violation import refuse
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.train.rules.violations import violations_in_step

GOOD = {"base_lr": "0.1", "lr_policy": '"fixed"', "max_iter": "10"}


def solver(folder: Path, more: str) -> RunPlan:
    """``more`` on the first line, then those of the good settings that it does not give."""
    rest = [f"{field}: {value}" for field, value in GOOD.items() if not more.startswith(f"{field}: ")]
    path = folder / "solver.prototxt"
    path.write_text("\n".join([more, *rest]))
    return read_plan(path)


def check(plan: RunPlan) -> None:
    refuse(plan, violations_in_step(plan))
