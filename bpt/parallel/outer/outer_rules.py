"""The rules of the outer layer (SGWU, AGWU, ASGD): which settings combine with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from bpt.base.caller import set_in_solver
from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.proto import bpt_pb2 as pb

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

_Parallel = pb.ParallelParameter

PARAM, OUTER_PARAM = "agwu_param", "outer_param"
_READERS = {
    "normalizer": ("AGWU",), "local_epochs": ("SGWU", "AGWU"), "max_staleness": ("AGWU", "ASGD"),
    "weigh_by_accuracy": ("SGWU", "AGWU"), "weigh_by_samples": ("SGWU", "AGWU"),
    "accuracy": ("SGWU", "AGWU"), "push": ("ASGD",), "fetch": ("ASGD",), "local_updates": ("SGWU", "AGWU"),
    "staleness": ("AGWU", "ASGD"), "staleness_limit": ("AGWU", "ASGD"), "compensation": ("AGWU", "ASGD"),
}  # fmt: skip
_LEAST = {
    "local_epochs": 1, "max_staleness": 0, "push": 1, "fetch": 1, "ranks": 0, "staleness_limit": 0, "compensation": 0,
}  # fmt: skip
STEPPING = (_Parallel.LOCAL, _Parallel.SGWU, _Parallel.AGWU)
_OF_ONE_CURVE = {
    "plateau": "follows the loss of the run",
    "average_param": "averages the weights of each iteration",
    "early_stopping_param": "ends the run between two of its iterations",
    "snapshot_best": "writes the state of the iteration that was tested",
}
"""Settings that need a run in step, and why."""

_IN_STEP = (_Parallel.ALLREDUCE, _Parallel.TREE, _Parallel.CGDP, _Parallel.RING)


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Yield why the outer layer cannot train this way; nothing if it does not train."""
    if plan.is_outer and plan.parallel_param.auto:
        yield Violation(
            (PARALLEL, "auto"),
            "auto: true chooses among what goes in step, and exchange: {exchange} does not",
            "leave one of them out",
            exchange=_Parallel.Exchange.Name(plan.parallel_param.exchange),
        )
    yield from check_range(plan.parallel_param.outer_param, "lr", PARALLEL, OUTER_PARAM, above=0)
    yield from check_range(plan.parallel_param.outer_param, "momentum", PARALLEL, OUTER_PARAM, least=0, below=1)
    if not plan.is_outer:
        return
    parallel, outer = plan.parallel_param, plan.parallel_param.agwu_param
    name = _Parallel.Exchange.Name(parallel.exchange)
    for field, least in _LEAST.items():
        yield from check_range(outer, field, PARALLEL, PARAM, least=least)
    yield from _of_ranks(plan)
    if parallel.exchange == _Parallel.ASGD and outer.max_staleness and outer.fetch > 1:
        yield Violation(
            (PARALLEL, PARAM, "fetch"),
            f"fetch: {outer.fetch} lets a worker fall behind on purpose, and max_staleness forbids it",
            "leave one of them out",
        )
    yield from check_range(parallel, "servers", PARALLEL, least=0)
    if parallel.exchange == _Parallel.ASGD and parallel.servers > 0:
        yield Violation(
            (PARALLEL, "servers"),
            f"servers: {parallel.servers} does not go with exchange: ASGD, where the server applies the solver's "
            "update rule to the whole net (its moments, and clip_gradients' norm over all layers)",
            "leave it out, or use SGWU or AGWU",
        )
    for setting, why in _OF_ONE_CURVE.items():
        is_given = bool(plan.snapshot_best) if setting == "snapshot_best" else plan.given(setting)
        if setting == plan.optim.lr_policy or is_given:
            place = "lr_policy" if setting == plan.optim.lr_policy else setting
            yield Violation(
                (place,), f"{setting} {why}, and with exchange: {name} every worker has its own", "leave it out"
            )
    if plan.debug_info:
        yield Violation(
            ("debug_info",),
            f"debug_info: true looks at one net, and with exchange: {name} every rank has its own",
            "leave it out",
        )


def _of_ranks(plan: RunPlan) -> Iterator[Violation]:
    """Yield why a worker cannot consist of such ranks."""
    parallel, outer = plan.parallel_param, plan.parallel_param.agwu_param
    stages, shards, each = parallel.num_stages, parallel.num_shards, parallel.node_ranks
    if min(stages, shards) < 1 or outer.ranks < 0:  # told by others
        return
    if each % parallel.replica_ranks:
        yield Violation(
            (PARALLEL, PARAM, "ranks"),
            f"ranks: {each} cannot be divided into num_stages {stages} × num_shards {shards} = "
            f"{parallel.replica_ranks} ranks a replica",
            f"use a multiple of {parallel.replica_ranks}",
        )
    if outer.worker_exchange not in _IN_STEP:
        yield Violation(
            (PARALLEL, PARAM, "worker_exchange"),
            f"worker_exchange: {_Parallel.Exchange.Name(outer.worker_exchange)} is not for the ranks of a worker, "
            "which go in step",
            "use ALLREDUCE, TREE, CGDP or RING",
        )
    if each > stages and parallel.ship_data and parallel.server == _Parallel.COLOCATED:
        yield Violation(
            (PARALLEL, "ship_data"),
            f"ship_data: true does not go with server: COLOCATED and workers of {each} ranks, several of which read "
            "data: to the server's own worker nothing is sent",
            "leave one of them out",
        )


def violations_of_ranks(plan: RunPlan, ranks: int) -> Iterator[Violation]:
    """Yield why this number of ranks does not make a server and whole computing nodes."""
    parallel = plan.parallel_param
    each, apart = parallel.node_ranks, parallel.servers
    colocated = parallel.server == _Parallel.COLOCATED
    least = 1 + apart + each * (not colocated)
    if apart > 0 and ranks < least:
        yield Violation(
            (PARALLEL, "servers"),
            f"servers: {apart} needs rank 0, {apart} rank{'s' * (apart > 1)} behind it that hold the weights, and at "
            f"least one computing node: {least} ranks, not {ranks}",
            f"start {least} or more (mpirun -n {least}), or leave servers out",
        )
        return
    ranks -= apart
    serves = 0 if colocated else 1  # ranks that only serve
    if each == 1 or (ranks > serves and (ranks - serves) % each == 0):
        return
    below = serves + (ranks - serves) // each * each
    wanted = [str(number + apart) for number in (below, below + each) if number > serves]
    stages, shards, set_ranks = parallel.num_stages, parallel.num_shards, parallel.agwu_param.ranks
    fields: list[tuple[tuple[str, ...], str]] = [(("num_stages",), f"num_stages: {stages}")] * (stages > 1)
    fields += [(("num_shards",), f"num_shards: {shards}")] * (shards > 1)
    fields += [((PARAM, "ranks"), f"agwu_param {{ ranks: {set_ranks} }}")] * (set_ranks > 0)
    where, _ = fields[-1]
    yield Violation(
        (PARALLEL, *where),
        f"exchange: {_Parallel.Exchange.Name(parallel.exchange)} with {' and '.join(shown for _, shown in fields)} "
        f"needs {'rank 0, which serves, and ' * serves}{each} ranks for each "
        f"{'pipeline' if each == stages else 'worker'}; "
        f"{ranks} rank{'s are' if ranks > 1 else ' is'} not {'1 + ' * serves}{each} k: start {' or '.join(wanted)} "
        f"(mpirun -n {wanted[-1]}), or change {where[-1]}",
        about=PARALLEL,
    )


def violations_of_data(
    plan: RunPlan, samples: int, workers: int, passes: Fraction, grain: int = 1
) -> Iterator[Violation]:
    """Yield why this number of workers cannot train a data set this way.

    Args:
        samples: N.
        passes: K.
        grain: samples that stay together.
    """
    parallel, most = plan.parallel_param, samples // grain

    def shown(message: str, field: str, value: int) -> str:
        default = "" if plan.given(PARALLEL, message, field) else " (the default)"
        return f"{field} is {value}{default}"

    batches, whole = parallel.balance_param.num_batches, int(passes)
    if parallel.balance == _Parallel.IDPA:
        way, what = (PARALLEL, "balance_param", "num_batches"), shown("balance_param", "num_batches", batches)
        if batches > most:
            there = f"{samples} samples" if grain == 1 else f"{most} whole batches of {grain} samples"
            yield Violation(
                way, f"{what}, but there are only {there} to hand out", f"use num_batches: {max(most, 1)} or fewer"
            )
        if batches > 1 and batches > whole:
            yield Violation(
                way,
                f"{what}, but the data are trained only {float(passes):.3g} times",
                f"use num_batches: {whole} or fewer" if whole > 1 else "use num_batches: 1",
            )
    staleness = parallel.agwu_param.max_staleness
    if parallel.exchange != _Parallel.SGWU and 0 < staleness < workers - 1:
        yield Violation(
            (PARALLEL, PARAM, "max_staleness"),
            f"{shown(PARAM, 'max_staleness', staleness)}, but of {workers} workers that start together the last "
            f"is stale by {workers - 1}",
            f"use max_staleness: {workers - 1} or more, or 0 for no bound",
        )


def violations_in_step(plan: RunPlan) -> Iterator[Violation]:
    """Yield why ranks in step, or a single process, cannot train this way."""
    if plan.is_outer:
        yield Violation(
            (PARALLEL, "exchange"),
            f"exchange: {_Parallel.Exchange.Name(plan.parallel_param.exchange)} is for bpt train (and bpt simulate), "
            "where workers do not go in step; here, "
            f"{set_in_solver('parallel_param { exchange: ALLREDUCE balance: UNIFORM }')}",
        )


def ignored_settings(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of an outer layer that is absent, or that it does not use."""
    name = _Parallel.Exchange.Name(plan.parallel_param.exchange)
    yield from _ignored_steps(plan)
    if not plan.is_outer:
        for field in (PARAM, "server", "ship_data", "servers"):
            if plan.given(PARALLEL, field):
                yield IgnoredSetting((PARALLEL, field), "without exchange: SGWU, AGWU or ASGD")
        return
    parallel = plan.parallel_param
    if plan.given(PARALLEL, "batch_scope"):
        yield IgnoredSetting((PARALLEL, "batch_scope"), f"with exchange: {name}")
    if parallel.node_ranks == parallel.num_stages:  # no batch is divided
        if plan.given(PARALLEL, "sync_batch_norm"):
            yield IgnoredSetting((PARALLEL, "sync_batch_norm"), _UNDIVIDED)
        if plan.given(PARALLEL, PARAM, "worker_exchange"):
            yield IgnoredSetting((PARALLEL, PARAM, "worker_exchange"), _UNDIVIDED)
    yield from _unread(plan, name)


_UNDIVIDED = "without agwu_param { ranks } above num_stages, or num_shards above 1: a worker runs whole batches"


def _ignored_steps(plan: RunPlan) -> Iterator[IgnoredSetting]:
    """Yield the settings of an outer optimizer that no exchange asks, or that has no type."""
    if plan.given(PARALLEL, OUTER_PARAM) and plan.parallel_param.exchange not in STEPPING:
        yield IgnoredSetting((PARALLEL, OUTER_PARAM), "without exchange: LOCAL, SGWU or AGWU")
    elif not plan.parallel_param.outer_param.name:
        for field in ("lr", "momentum"):
            if plan.given(PARALLEL, OUTER_PARAM, field):
                yield IgnoredSetting((PARALLEL, OUTER_PARAM, field), "without a type")


def _unread(plan: RunPlan, name: str) -> Iterator[IgnoredSetting]:
    """Yield the settings of ``agwu_param`` that the exchange ``name``, or its rule of staleness, does not read."""
    rule = pb.AgwuParameter.Staleness.Name(plan.parallel_param.agwu_param.staleness)
    for field, reader in (("staleness_limit", "DISCARD"), ("compensation", "COMPENSATE")):
        if plan.given(PARALLEL, PARAM, field) and rule != reader:
            yield IgnoredSetting((PARALLEL, PARAM, field), f"without staleness: {reader}")
    for field, exchanges in _READERS.items():
        if plan.given(PARALLEL, PARAM, field) and name not in exchanges:
            yield IgnoredSetting((PARALLEL, PARAM, field), f"with exchange: {name}")
