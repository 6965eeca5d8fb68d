"""The rules of load balancing: which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

_Exchange, _Balance = pb.ParallelParameter.Exchange, pb.ParallelParameter.Balance
_Parallel = pb.ParallelParameter
STATIC, IDPA, DYNAMIC = _Parallel.STATIC, _Parallel.IDPA, _Parallel.DYNAMIC
BALANCE, PARAM = (PARALLEL, "balance"), "balance_param"
ITERATION = pb.BalanceParameter.ITERATION
HIDDEN = (_Parallel.ALLREDUCE, _Parallel.RING, _Parallel.CGDP)  # exchanges that travel while backward computes


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ``plan`` cannot balance as it says."""
    parallel = plan.parallel_param
    if parallel.balance_param.migrate and parallel.balance != IDPA:
        yield Violation(
            (PARALLEL, PARAM, "migrate"),
            f"migrate: true moves samples that IDPA has divided, and balance is {_Balance.Name(parallel.balance)}",
            "use balance: IDPA with exchange: SGWU, AGWU or ASGD, or leave migrate out",
        )
    if parallel.balance_param.follows_noise:
        yield from _noise(plan)
    if plan.is_outer:
        if parallel.balance in (STATIC, DYNAMIC):
            yield Violation(
                BALANCE,
                f"balance: {_Balance.Name(parallel.balance)} divides the batches of a synchronous exchange; exchange: "
                "{exchange} divides the data set: use balance: IDPA or UNIFORM",
                exchange=_Exchange.Name(parallel.exchange),
            )
        yield from check_range(parallel.balance_param, "num_batches", PARALLEL, PARAM, least=1)
        return
    if parallel.balance == IDPA:
        yield Violation(
            BALANCE,
            "balance: IDPA divides the data set among the workers of exchange: SGWU, AGWU or ASGD",
            "use one of them, or balance: STATIC or DYNAMIC, which divide each batch",
        )
    if parallel.balance == DYNAMIC and parallel.is_delayed:
        yield Violation(
            BALANCE,
            "balance: DYNAMIC changes shares between two iterations, and under schedule: DELAYED batches of several "
            "iterations are under way",
            "use another schedule, or balance: STATIC",
        )
    if is_by_iteration(plan) and (divided := _division(plan)):
        why = f"by: ITERATION follows the gradients of whole nets, and {divided} divides the net"
        yield Violation((PARALLEL, PARAM, "by"), why, "set by: COMPUTE, or leave that out")
    if is_by_iteration(plan) and parallel.divides_update:
        yield Violation(
            (PARALLEL, PARAM, "by"),
            "by: ITERATION follows iterations that end with the sums of gradients, and "
            f"update: {_update_of(plan)} gathers weights afterwards",
            "set by: COMPUTE, or update: REPLICATED",
        )
    if parallel.balance == STATIC and not parallel.balance_param.profile:
        yield Violation(
            BALANCE,
            "balance: STATIC needs balance_param { profile: … }, a file that "
            '"mpirun … bpt time --solver S --profile FILE" writes',
        )


def _noise(plan: RunPlan) -> Iterator[Violation]:
    """Yield why the batch cannot follow the noise of the gradients."""
    parallel, param = plan.parallel_param, plan.parallel_param.balance_param
    rule = (PARALLEL, PARAM, "batch", "rule")
    yield from check_range(param.batch, "min", PARALLEL, PARAM, "batch", least=1)
    yield from check_range(param.batch, "max", PARALLEL, PARAM, "batch", least=max(param.batch.min, 1))
    if parallel.exchange not in HIDDEN:
        name = _Exchange.Name(parallel.exchange)
        why = (
            "NOISE_SCALE compares each rank's gradients with their sum, which exchange: {exchange} does not give to all"
        )
        yield Violation(rule, why, "use exchange: ALLREDUCE, RING or CGDP", exchange=name)
    if divided := _division(plan):
        why = f"NOISE_SCALE compares gradients of whole nets, and {divided} divides the net"
        yield Violation(rule, why, "leave that out")
    if parallel.divides_update:
        why = f"NOISE_SCALE needs all sums of gradients, and update: {_update_of(plan)} gives each rank a slice of them"
        yield Violation(rule, why, "set update: REPLICATED")
    if codec := parallel.compression_param.name:
        yield Violation(rule, f"NOISE_SCALE needs exact sums of gradients, and codec: {codec} rounds them")
    if param.normalizer == pb.BalanceParameter.UNIFORM:
        yield Violation(rule, "NOISE_SCALE counts samples, and normalizer: UNIFORM weights ranks", "leave it out")
    if plan.optim.iter_size > 1:
        why = f"NOISE_SCALE decides the passes of an iteration, and iter_size is {plan.optim.iter_size}"
        yield Violation(("iter_size",), why, "leave iter_size out, and set batch { min }", about=PARAM)
    if parallel.balance == DYNAMIC and is_by_iteration(plan):
        why = "by: ITERATION measures iterations, and NOISE_SCALE changes the number of their passes"
        yield Violation(rule, why, "set by: COMPUTE, or balance: STATIC")


def _division(plan: RunPlan) -> str:
    """Return the setting that divides the net among ranks; empty if each rank has all of it."""
    parallel = plan.parallel_param
    for field in ("num_shards", "num_stages"):
        if getattr(parallel, field) > 1:
            return f"{field}: {getattr(parallel, field)}"
    return "replica { num_stages }" if parallel.depth > 1 else ""


def _update_of(plan: RunPlan) -> str:
    return _Parallel.Update.Name(plan.parallel_param.update)


def is_by_iteration(plan: RunPlan) -> bool:
    """Return whether shares make the iteration short, and not only the computing in it."""
    parallel = plan.parallel_param
    divided = parallel.balance in (STATIC, DYNAMIC) and not plan.is_outer
    return divided and parallel.balance_param.by == ITERATION and parallel.exchange in HIDDEN


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of balances that the plan does not use."""
    parallel = plan.parallel_param
    outer = f"with exchange: {_Exchange.Name(parallel.exchange)}" if plan.is_outer else ""
    without = {
        "profile": outer or ("" if parallel.balance == STATIC else "without balance: STATIC"),
        "normalizer": outer,
        "batch": "" if parallel.balance_param.follows_noise else "without batch { rule: NOISE_SCALE }",
        "by": outer or _why_by_compute(plan),
        "num_batches": "" if parallel.balance == IDPA else "without balance: IDPA",
        "rule": "" if parallel.balance == IDPA else "without balance: IDPA",
    }
    for field, why in without.items():
        if why and plan.given(PARALLEL, PARAM, field):
            yield IgnoredSetting((PARALLEL, PARAM, field), why)


def _why_by_compute(plan: RunPlan) -> str:
    """Return why ``by`` makes no difference; empty if it may."""
    parallel = plan.parallel_param
    if parallel.balance not in (STATIC, DYNAMIC):
        return "without balance: STATIC or DYNAMIC"
    return "" if parallel.exchange in HIDDEN else f"with exchange: {_Exchange.Name(parallel.exchange)}"
