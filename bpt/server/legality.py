"""Refuses what the outer layer cannot do, and tells what has no effect in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bpt.errors import PrototxtError
from bpt.layers.prefetching import PrefetchingDataLayer
from bpt.net import Net
from bpt.plan.dividing import check_dealt_out
from bpt.plan.pipeline_rules import check_pipeline
from bpt.plan.solver_rules import check_solver
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from bpt.schedule.outer.exchanges import OUTER

_Exchange = pb.ParallelParameter.Exchange


def check_outer(solver: SolverSource) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless the outer layer can train by this text."""
    parallel = solver.param.parallel_param
    name = _Exchange.Name(parallel.exchange)

    def refuse(message: str, *path: str) -> None:
        raise PrototxtError(f"parallel_param: {message}", solver.origin("parallel_param", *path))

    if parallel.num_shards != 1:
        refuse(
            f"exchange: {name} trains a whole net on each rank, or on the stages of a pipeline; num_shards: "
            f"{parallel.num_shards} does not go with it; leave it out", "num_shards",
        )  # fmt: skip
    if parallel.num_stages < 1:
        refuse(f"num_stages is {parallel.num_stages}; it must be at least 1", "num_stages")
    if parallel.balance == pb.ParallelParameter.STATIC:
        refuse(
            f"balance: STATIC divides the batches of a synchronous exchange; exchange: {name} divides the data set: "
            "use balance: IDPA or UNIFORM", "balance",
        )  # fmt: skip
    if parallel.num_stages > 1:
        _check_pipelines(solver, name)
    for message, field, least in (
        ("agwu_param", "local_epochs", 1), ("agwu_param", "max_staleness", 0), ("agwu_param", "push", 1),
        ("agwu_param", "fetch", 1), ("balance_param", "num_batches", 1),
    ):  # fmt: skip
        value = getattr(getattr(parallel, message), field)
        if value < least:
            refuse(f"{field} is {value}; it must be at least {least}", message, field)
    outer = parallel.agwu_param
    if parallel.exchange == pb.ParallelParameter.ASGD and outer.max_staleness and outer.fetch > 1:
        refuse(
            f"fetch: {outer.fetch} lets a worker fall behind on purpose, and max_staleness forbids it; leave one of "
            "them out", "agwu_param", "fetch",
        )  # fmt: skip
    if solver.param.debug_info:
        raise PrototxtError(
            f"debug_info: true looks at one net, and with exchange: {name} every rank has its own; leave it out",
            solver.origin("debug_info"),
        )


def _check_pipelines(solver: SolverSource, name: str) -> None:
    """Raise a PrototxtError unless a computing node can be a pipeline of ``num_stages`` ranks."""
    parallel = solver.param.parallel_param
    stages = f"num_stages: {parallel.num_stages}"
    if parallel.pipeline_param.schedule == pb.PipelineParameter.DELAYED:
        raise PrototxtError(
            f"parallel_param: schedule: DELAYED does not go with exchange: {name}: between two iterations there are "
            "batches under way, which would go on with other weights when new ones come; use GPIPE or ONE_F_ONE_B",
            solver.origin("parallel_param", "pipeline_param", "schedule"),
        )
    if parallel.server == pb.ParallelParameter.COLOCATED:
        raise PrototxtError(
            f"parallel_param: server: COLOCATED does not go with {stages}: a stage waits for the others of its "
            "pipeline in most of its calls, and the server must never wait; leave it out: rank 0 only serves",
            solver.origin("parallel_param", "server"),
        )
    check_pipeline(solver)


def check_ranks(solver: SolverSource, ranks: int) -> None:
    """Raise a PrototxtError unless so many ranks are a server and whole pipelines."""
    stages = solver.param.parallel_param.num_stages
    if stages == 1 or (ranks > 1 and (ranks - 1) % stages == 0):
        return
    below = 1 + (ranks - 1) // stages * stages
    wanted = [str(number) for number in (below, below + stages) if number > 1]
    name = _Exchange.Name(solver.param.parallel_param.exchange)
    raise PrototxtError(
        f"parallel_param: exchange: {name} with num_stages: {stages} needs rank 0, which serves, and {stages} ranks "
        f"for each pipeline; {ranks} rank{'s are' if ranks > 1 else ' is'} not 1 + {stages} k: start "
        f"{' or '.join(wanted)} (mpirun -n {wanted[-1]}), or change num_stages",
        solver.origin("parallel_param", "num_stages"),
    )


def check_text(solver: SolverSource) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless ``bpt train`` can run by this text, in either way."""
    if solver.param.parallel_param.exchange in OUTER:
        check_outer(solver)
        check_solver(of_node(solver))
    else:
        check_solver(solver)


def apart(solver: SolverSource) -> SolverSource:
    """The same text for one process that is alone; of ``parallel_param``, only ``inner_param`` is left."""
    param = pb.SolverParameter()
    param.CopyFrom(solver.param)
    param.ClearField("parallel_param")
    if solver.param.parallel_param.HasField("inner_param"):
        param.parallel_param.inner_param.CopyFrom(solver.param.parallel_param.inner_param)
    return replace(solver, param=param)


def of_node(solver: SolverSource) -> SolverSource:
    """The same text for a computing node: as ``apart``, but a pipeline keeps its stages."""
    own, parallel = apart(solver), solver.param.parallel_param
    if parallel.num_stages > 1:
        own.param.parallel_param.num_stages = parallel.num_stages
        own.param.parallel_param.pipeline_param.CopyFrom(parallel.pipeline_param)
    return own


def without_effect(*params: pb.ParallelParameter) -> Iterator[str]:
    """What is set but has no effect in the outer layer: somebody may have forgotten what goes with it.

    Args:
        params: of several ways to run; told is what has no effect in any of them.
    """
    found = [dict(_idle(param)) for param in params]
    for what in found[0]:
        if all(what in idle for idle in found):
            yield f"{what} has no effect {' or '.join(dict.fromkeys(idle[what] for idle in found))}"


def _idle(param: pb.ParallelParameter) -> Iterator[tuple[str, str]]:
    """What is set, and why it has no effect."""
    name, outer = _Exchange.Name(param.exchange), param.agwu_param
    for field in ("cgdp_param", "fc_param", "pipeline_param", "sync_batch_norm", "batch_scope"):
        if param.HasField(field) and not (field == "pipeline_param" and param.num_stages > 1):
            yield field, f"with exchange: {name}"
    readers = {
        "normalizer": ("AGWU",), "local_epochs": ("SGWU", "AGWU"), "max_staleness": ("AGWU", "ASGD"),
        "weigh_by_accuracy": ("SGWU", "AGWU"), "push": ("ASGD",), "fetch": ("ASGD",),
    }  # fmt: skip
    for field, exchanges in readers.items():
        if outer.HasField(field) and name not in exchanges:
            yield f"agwu_param {{ {field} }}", f"with exchange: {name}"
    for field in ("num_batches", "rule"):
        if param.balance_param.HasField(field) and param.balance != pb.ParallelParameter.IDPA:
            yield f"balance_param {{ {field} }}", "without balance: IDPA"
    for field in ("profile", "normalizer"):
        if param.balance_param.HasField(field):
            yield f"balance_param {{ {field} }}", f"with exchange: {name}"


def dealt_layers(net: Net) -> tuple[PrefetchingDataLayer, ...]:
    """The layers of ``net`` that read a data set, of which each worker gets some samples.

    Raises:
        LayerError: a data layer's samples cannot be dealt out.
    """
    layers = []
    for layer in net.data_layers().values():
        if not isinstance(layer, PrefetchingDataLayer):
            reason = layer.mixes_samples(layer.spec, ()) or "its samples have no numbers"
            raise layer.spec.error(f"{reason}; SGWU, AGWU and ASGD need a data set on disk", "type")
        layers.append(layer)
    return tuple(layers)


def samples_of(net: Net, exchange: int) -> int:
    """N: the samples of the data set that ``net`` trains.

    Raises:
        LayerError: its data layers have different numbers of samples, or its batches must stay whole.
        UserError: it has none.
    """
    layers = dealt_layers(net)
    if not layers:
        raise PrototxtError(
            f"the training net has no layer that reads a data set, which exchange: {_Exchange.Name(exchange)} could "
            "divide among the workers; use exchange: ALLREDUCE"
        )
    first, *others = layers
    for layer in others:
        if layer.epoch != first.epoch:
            raise layer.spec.error(
                f'has {layer.epoch} samples, but layer "{first.spec.name}" has {first.epoch}: a worker could not tell '
                "which belong together; use exchange: ALLREDUCE"
            )
    check_dealt_out(net.graph)
    return first.epoch
