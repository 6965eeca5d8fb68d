"""Checks of what the doctor reports about the division of a run over ranks."""

from __future__ import annotations

from pathlib import Path

import torch

from bpt.apps.doctor.findings import Ranks
from bpt.apps.doctor.parallel_plan import CheckedPlan, check_plan
from bpt.apps.doctor.texts import Texts
from bpt.config.plan.resolve import read_plan
from bpt.perf.speeds.ping_pong import MeasuredLinks
from tests.apps.doctor.world import on_hosts

CPU = torch.device("cpu")


def check(hosts: str, path: Path, known: tuple[str, ...] = ()) -> CheckedPlan:
    """The plan of the solver at ``path``, the same on all ranks."""

    def one(ranks: Ranks) -> CheckedPlan:
        texts = Texts.read(lambda: read_plan(path))
        assert texts.solver.value
        assert texts.plans.value
        return check_plan(ranks, texts.solver.value, texts.plans.value, CPU, known, MeasuredLinks((), 1e-6))

    plans = on_hosts(hosts, one)
    assert all((other.section, str(other.wrong)) == (plans[0].section, str(plans[0].wrong)) for other in plans)
    return plans[0]
