"""What goes together with the outer layer (SGWU, AGWU, ASGD), and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from bpt.proto import bpt_pb2 as pb
from bpt.violation import PARALLEL, Unused, Violation, beyond

if TYPE_CHECKING:
    from bpt.plan.spec import RunPlan

_Parallel = pb.ParallelParameter
PARAM = "agwu_param"
_READERS = {
    "normalizer": ("AGWU",), "local_epochs": ("SGWU", "AGWU"), "max_staleness": ("AGWU", "ASGD"),
    "weigh_by_accuracy": ("SGWU", "AGWU"), "push": ("ASGD",), "fetch": ("ASGD",),
}  # fmt: skip


def violations(plan: RunPlan) -> Iterator[Violation]:
    """Why the outer layer cannot train so; none if it does not train."""
    if not plan.is_outer:
        return
    parallel, outer = plan.parallel_param, plan.parallel_param.agwu_param
    name = _Parallel.Exchange.Name(parallel.exchange)
    if parallel.num_shards > 1:
        yield Violation(
            (PARALLEL, "num_shards"),
            f"exchange: {name} trains a whole net on each rank, or on the stages of a pipeline; num_shards: "
            f"{parallel.num_shards} does not go with it; leave it out",
        )
    if parallel.num_stages > 1 and parallel.server == _Parallel.COLOCATED:
        yield Violation(
            (PARALLEL, "server"),
            f"server: COLOCATED does not go with num_stages: {parallel.num_stages}: a stage waits for the others of "
            "its pipeline in most of its calls, and the server must never wait",
            "leave it out: rank 0 only serves",
        )
    for field, least in (("local_epochs", 1), ("max_staleness", 0), ("push", 1), ("fetch", 1)):
        yield from beyond(outer, field, PARALLEL, PARAM, least=least)
    if parallel.exchange == _Parallel.ASGD and outer.max_staleness and outer.fetch > 1:
        yield Violation(
            (PARALLEL, PARAM, "fetch"),
            f"fetch: {outer.fetch} lets a worker fall behind on purpose, and max_staleness forbids it",
            "leave one of them out",
        )
    if plan.debug_info:
        yield Violation(
            ("debug_info",),
            f"debug_info: true looks at one net, and with exchange: {name} every rank has its own",
            "leave it out",
        )


def violations_of_ranks(plan: RunPlan, ranks: int) -> Iterator[Violation]:
    """Why so many ranks are not a server and whole computing nodes."""
    parallel = plan.parallel_param
    stages = parallel.num_stages
    if stages == 1 or (ranks > 1 and (ranks - 1) % stages == 0):
        return
    below = 1 + (ranks - 1) // stages * stages
    wanted = [str(number) for number in (below, below + stages) if number > 1]
    yield Violation(
        (PARALLEL, "num_stages"),
        f"exchange: {_Parallel.Exchange.Name(parallel.exchange)} with num_stages: {stages} needs rank 0, which serves, "
        f"and {stages} ranks for each pipeline; {ranks} rank{'s are' if ranks > 1 else ' is'} not 1 + {stages} k: "
        f"start {' or '.join(wanted)} (mpirun -n {wanted[-1]}), or change num_stages",
    )


def violations_of_data(plan: RunPlan, samples: int, workers: int, passes: Fraction) -> Iterator[Violation]:
    """Why so many workers cannot train a data set so.

    Args:
        samples: N.
        passes: K.
    """
    parallel = plan.parallel_param

    def shown(message: str, field: str, value: int) -> str:
        default = "" if plan.given(PARALLEL, message, field) else " (the default)"
        return f"{message}: {field} is {value}{default}"

    batches, whole = parallel.balance_param.num_batches, int(passes)
    if parallel.balance == _Parallel.IDPA:
        way, what = (PARALLEL, "balance_param", "num_batches"), shown("balance_param", "num_batches", batches)
        if batches > samples:
            yield Violation(
                way,
                f"{what}, but there are only {samples} samples to hand out",
                f"use num_batches: {max(samples, 1)} or fewer",
            )
        if batches > 1 and batches > whole:
            yield Violation(
                way,
                f"{what}, but the data are trained only {whole} times",
                f"use num_batches: {max(whole, 1)} or fewer",
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
    """Why ranks that go in step, or one process that is alone, cannot train so."""
    if plan.is_outer:
        yield Violation(
            (PARALLEL, "exchange"),
            f"exchange: {_Parallel.Exchange.Name(plan.parallel_param.exchange)} is for bpt train (and bpt simulate), "
            "where workers do not go in step; here, add --set 'parallel_param { exchange: ALLREDUCE balance: UNIFORM "
            "}'",
        )


def unused(plan: RunPlan) -> Iterator[Unused]:
    """What is set of an outer layer that is not there or, if it is, of what is not in it."""
    name = _Parallel.Exchange.Name(plan.parallel_param.exchange)
    if not plan.is_outer:
        for field in (PARAM, "server", "ship_data"):
            if plan.given(PARALLEL, field):
                yield Unused((PARALLEL, field), "without exchange: SGWU, AGWU or ASGD")
        return
    for field in ("sync_batch_norm", "batch_scope"):
        if plan.given(PARALLEL, field):
            yield Unused((PARALLEL, field), f"with exchange: {name}")
    for field, exchanges in _READERS.items():
        if plan.given(PARALLEL, PARAM, field) and name not in exchanges:
            yield Unused((PARALLEL, PARAM, field), f"with exchange: {name}")
