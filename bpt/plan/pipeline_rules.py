"""Refuses a pipeline that contradicts itself or what it is combined with, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from bpt.errors import PrototxtError
from bpt.graph.layer_graph import LayerGraph
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource

INNER = ("parallel_param", "inner_param", "engine")
IN_ORDER = (pb.PipelineParameter.BLOCK, pb.PipelineParameter.MANUAL)
"""Allocators that give each stage one run of layers, in the stages' order, or can."""


def check_pipeline(solver: SolverSource) -> None:
    """Raise a PrototxtError, at the field that is wrong, unless a run with several stages makes sense."""
    parallel = solver.param.parallel_param
    param = parallel.pipeline_param
    stages = f"num_stages: {parallel.num_stages}"

    def refuse(message: str, *path: str) -> NoReturn:
        raise PrototxtError(f"parallel_param: {message}", solver.origin("parallel_param", *path))

    for field, least in (("micro_batches", 1), ("partitions", 0)):
        value = getattr(param, field)
        if value < least:
            refuse(f"{field} is {value}; it must be at least {least}", "pipeline_param", field)
    for field, least in (("population", 2), ("generations", 0)):
        value = getattr(param.gabra_param, field)
        if value < least:
            refuse(f"{field} is {value}; it must be at least {least}", "pipeline_param", "gabra_param", field)
    if not 0 <= param.gabra_param.crossover <= 1:
        refuse(
            f"crossover is {param.gabra_param.crossover:g}; it must be from 0 to 1",
            "pipeline_param", "gabra_param", "crossover",
        )  # fmt: skip
    if 0 < param.partitions < parallel.num_stages:
        refuse(
            f"partitions: {param.partitions} are too few for {stages}: every stage runs one at least",
            "pipeline_param", "partitions",
        )  # fmt: skip
    if parallel.num_shards > 1:
        refuse(
            f"num_shards: {parallel.num_shards} does not go with {stages}: a fully connected layer on a stage of its "
            "own is on no other rank already; leave num_shards out",
            "num_shards",
        )
    if parallel.balance == pb.ParallelParameter.STATIC:
        refuse(
            f"balance: STATIC gives shares to ranks by their speed, but with {stages} a pipeline trains a share; place "
            "layers by speed instead: pipeline_param { devices: … }",
            "balance",
        )
    if parallel.exchange == pb.ParallelParameter.CGDP and parallel.cgdp_param.chunking == pb.CgdpParameter.MODEL:
        refuse(
            f"cgdp_param {{ chunking: MODEL }} measures all layers on each rank, which has some of them with {stages}; "
            "set chunk_size, or leave chunking out",
            "cgdp_param", "chunking",
        )  # fmt: skip
    if solver.param.debug_info:
        raise PrototxtError(
            f"debug_info: true looks at every layer, and with {stages} no rank has them all",
            solver.origin("debug_info"),
        )
    if param.schedule == pb.PipelineParameter.DELAYED:
        _check_delayed(solver)


def _check_delayed(solver: SolverSource) -> None:
    param = solver.param

    def refuse(message: str, *path: str) -> NoReturn:
        raise PrototxtError(f"pipeline_param: schedule: DELAYED {message}", solver.origin(*path))

    parallel = param.parallel_param
    allocator = parallel.pipeline_param.allocator
    if allocator not in IN_ORDER and parallel.num_stages > 1:
        refuse(
            "needs consecutive layers on each stage, in the stages' order, to which allocator: "
            f"{pb.PipelineParameter.Allocator.Name(allocator)} does not keep; set allocator: BLOCK or MANUAL",
            "parallel_param", "pipeline_param", "allocator",
        )  # fmt: skip
    if param.iter_size > 1:
        refuse(f"applies the gradient of one batch at a time; iter_size is {param.iter_size}, set 1", "iter_size")
    if param.clip_gradients >= 0:
        refuse(
            "updates stages with gradients of different iterations, which have no norm together; leave clip_gradients "
            "out", "clip_gradients",
        )  # fmt: skip
    if parallel.inner_param.engine != pb.InnerParameter.LIBRARY:
        refuse("computes by copies of weights, of which inner_param { engine } knows nothing; set LIBRARY", *INNER)
    if parallel.exchange == pb.ParallelParameter.CGDP and not parallel.cgdp_param.chunk_size:
        refuse(
            "has batches under way when a search for chunks would cut the net anew; set cgdp_param { chunk_size }",
            "parallel_param", "cgdp_param",
        )  # fmt: skip
    if parallel.exchange == pb.ParallelParameter.TREE:
        refuse("goes with exchange: ALLREDUCE, RING or CGDP, not TREE", "parallel_param", "exchange")


def without_effect(parallel: pb.ParallelParameter, graph: LayerGraph) -> Iterator[str]:
    """What is set of pipelines but does nothing, field by field."""
    param, manual = parallel.pipeline_param, pb.PipelineParameter.MANUAL
    staged = parallel.num_stages > 1
    marked = [node.name for node in graph.nodes if node.spec.param.parallel_param.HasField("stage")]
    if marked and not (staged and param.allocator == manual):
        missing = "num_stages above 1" if not staged else "pipeline_param { allocator: MANUAL }"
        yield f'layer "{marked[0]}": parallel_param {{ stage }} has no effect without {missing}'
    if not staged:
        return
    name = pb.PipelineParameter.Allocator.Name(param.allocator)
    if param.schedule == pb.PipelineParameter.DELAYED and param.HasField("micro_batches"):
        yield "pipeline_param { micro_batches } has no effect with schedule: DELAYED, which does not divide batches"
    if name in ("BLOCK", "MANUAL"):
        for field in ("partitions", "objective"):
            if param.HasField(field):
                yield f"pipeline_param {{ {field} }} has no effect with allocator: {name}"
    if param.HasField("gabra_param") and name != "GABRA":
        yield f"pipeline_param {{ gabra_param }} has no effect with allocator: {name}"
