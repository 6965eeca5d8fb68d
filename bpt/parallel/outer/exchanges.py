"""The schedule that a solver's ``parallel_param`` asks for."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.idpa import DivisionRule, Idpa, Udpa
from bpt.parallel.outer.outer_rules import violations_of_data
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.update_factors import Normalizer

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan


def passes_of(iterations: int, batch: int, samples: int) -> Fraction:
    """Return K: how often ``iterations`` of one process train each sample.

    Args:
        iterations: to train.
        batch: samples of an iteration, over all its passes (``iter_size``).
        samples: of the data set.
    """
    return Fraction(iterations * batch, samples)


def make_schedule(plan: RunPlan, samples: int, workers: int, passes: Fraction, grain: int = 1) -> OuterSchedule:
    """Return the schedule of SGWU, AGWU or ASGD, with IDPA or, under ``balance: UNIFORM``, UDPA.

    Args:
        plan: of the run.
        samples: N.
        workers: m.
        passes: K, see ``passes_of``.
        grain: samples that a worker gets together, see Idpa.

    Raises:
        PrototxtError: a number does not fit N, m or K.
    """
    for violation in violations_of_data(plan, samples, workers, passes, grain):
        raise violation.error(plan.origin)
    param = plan.parallel_param
    balance, outer = param.balance_param, param.agwu_param
    idpa: Idpa = Udpa(samples, workers, grain=grain)
    migrate = balance.migrate
    together = param.balance == pb.ParallelParameter.IDPA and balance.finish == pb.BalanceParameter.TOGETHER
    if param.balance == pb.ParallelParameter.IDPA:
        rule = DivisionRule[pb.BalanceParameter.Rule.Name(balance.rule)]
        idpa = Idpa(samples, workers, balance.num_batches, rule, grain=grain)
    normalizer = Normalizer[pb.AgwuParameter.Normalizer.Name(outer.normalizer)]
    match param.exchange:
        case pb.ParallelParameter.SGWU:
            return Sgwu(idpa, passes, outer.local_epochs, outer.weigh_by_samples, migrate, param)
        case pb.ParallelParameter.AGWU:
            return Agwu(
                idpa,
                passes,
                outer.local_epochs,
                outer.max_staleness,
                normalizer,
                outer.weigh_by_samples,
                together,
                migrate,
                param,
            )
        case _:
            assert param.exchange == pb.ParallelParameter.ASGD, param.exchange
            return Asgd(idpa, passes, outer.push, outer.fetch, outer.max_staleness, together, migrate, param)
