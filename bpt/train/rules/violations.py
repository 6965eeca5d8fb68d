"""All reasons why a plan cannot run, and all settings in it without effect.

The rules of exchanges, balances, pipelines, the outer layer, the inner layer and the optimizer are in their own
packages. This module collects them, and adds the rules for the numbers of the training loop and for the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bpt.base.violation import PARALLEL, IgnoredSetting, Violation, check_range
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.engine import compute_rules
from bpt.engine.optim import lr_policy, unused_settings
from bpt.engine.optim import rules as optim_rules
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.balance import balance_rules, divisible_batches
from bpt.parallel.exchange import exchange_rules, local_rules
from bpt.parallel.exchange.codec import codec_rules
from bpt.parallel.model_parallel import model_parallel
from bpt.parallel.outer import outer_rules
from bpt.parallel.pipeline import pipeline_rules, replica_rules
from bpt.parallel.sharded_update import update_rules
from bpt.system.comm.grid import indivisible
from bpt.train import state
from bpt.train.rules import detection_rules, fault_rules, test_output_rules


def violations(plan: RunPlan) -> list[Violation]:
    """Return the reasons why ``plan`` cannot run that do not depend on nets, ranks, devices or files."""
    return [
        *_loop(plan),
        *detection_rules.violations(plan),
        *_topology(plan),
        *outer_rules.violations(plan),
        *pipeline_rules.violations(plan),
        *replica_rules.violations(plan),
        *exchange_rules.violations(plan),
        *codec_rules.violations(plan),
        *local_rules.violations(plan),
        *update_rules.violations(plan),
        *fault_rules.violations(plan),
        *balance_rules.violations(plan),
        *compute_rules.violations(plan),
        *lr_policy.violations(plan.optim),
        *optim_rules.violations(plan.optim),
        *test_output_rules.violations(plan),
    ]


def _loop(plan: RunPlan) -> Iterator[Violation]:
    if "max_iter" not in plan.optim.given:
        yield Violation((), "max_iter is not set: how many iterations to train?")
    yield from check_range(plan, "max_iter", least=0)
    yield from check_range(plan, "display", least=0)
    yield from check_range(plan, "average_loss", least=1)
    yield from check_range(plan.optim, "iter_size", least=1)
    for field in ("snapshot", "test_interval", "device_id"):
        yield from check_range(plan, field, least=0)
    for field in ("base_lr", "weight_decay", "momentum", "clip_gradients"):
        yield from check_range(plan.optim, field)
    for index, iterations in enumerate(plan.test_iter):
        if iterations < 0 or (iterations == 0 and _tests(plan)):
            yield Violation(("test_iter", index), f"test_iter is {iterations}; it must be at least 1")


def _tests(plan: RunPlan) -> bool:
    """Return whether tests are ever due."""
    before_first = plan.test_initialization and plan.test_interval
    return plan.is_outer or bool(before_first or 0 < plan.test_interval <= plan.max_iter)


def _topology(plan: RunPlan) -> Iterator[Violation]:
    for field in ("num_stages", "num_shards"):
        yield from check_range(plan.parallel_param, field, PARALLEL, least=1)


def violations_here(plan: RunPlan) -> list[Violation]:
    """Return the reasons why this machine cannot write the snapshots of ``plan``; this checks the folders."""
    return list(state.violations(plan))


def violations_in_step(plan: RunPlan) -> list[Violation]:
    """Return the violations of a synchronous run, the only kind except in ``bpt train`` and ``bpt simulate``."""
    return [*outer_rules.violations_in_step(plan), *violations(plan)]


def violations_of_ranks(plan: RunPlan, ranks: int, on_gpu: bool = False) -> list[Violation]:
    """Return the reasons why ``ranks`` ranks cannot run ``plan``.

    Args:
        on_gpu: whether this rank computes on a GPU.
    """
    found = list(compute_rules.violations_on_gpu(plan)) if on_gpu else []
    if plan.is_outer:
        return [*found, *outer_rules.violations_of_ranks(plan, ranks)]
    parallel = plan.parallel_param
    if why := "" if parallel.replica else indivisible(ranks, parallel.num_stages, parallel.num_shards):
        found.append(Violation((PARALLEL,), why, about=PARALLEL))
    return [*found, *replica_rules.violations_of_ranks(plan, ranks)]


def violations_of_net(
    plan: RunPlan, graph: LayerGraph, tests: Sequence[LayerGraph] = (), ranks: int = 2
) -> list[Violation]:
    """Return the reasons why ``ranks`` ranks cannot run ``plan`` with these nets.

    Args:
        graph: the graph of the training net, or of a net that is only tested.
        tests: the graphs of the training net's test nets.
    """
    parallel = plan.parallel_param
    found = list(test_output_rules.violations_of_net(plan, tests)) if graph.phase == pb.TRAIN else []
    trains = graph.phase == pb.TRAIN
    if ranks > 1:
        replicas = parallel.layout(ranks).replicas
        found += divisible_batches.violations_in_training(plan, graph, replicas) if trains else []
        for test in tests if trains else (graph, *tests):
            found += divisible_batches.violations_in_test(plan, test, replicas)
    found += replica_rules.violations_of_net(plan, graph)
    found += pipeline_rules.violations_of_net(plan, graph) if trains else []
    for net in (graph, *tests):
        found += divisible_batches.violations_on_stages(plan, net)
    for test in tests if trains else ():
        found += detection_rules.violations_of_test(plan, test)
    if parallel.num_shards > 1:
        for net in (graph, *tests):
            found += model_parallel.violations(net)
    return found


def ignored_settings(plan: RunPlan, on_gpu: bool = False, graph: LayerGraph | None = None) -> list[IgnoredSetting]:
    """Return the settings that have no effect.

    Args:
        on_gpu: whether this rank computes on a GPU.
        graph: the graph of the training net, if its layers should be checked, too.
    """
    found = [
        *exchange_rules.ignored_settings(plan),
        *codec_rules.ignored_settings(plan),
        *local_rules.ignored_settings(plan),
        *fault_rules.ignored_settings(plan),
        *outer_rules.ignored_settings(plan),
        *compute_rules.ignored_settings(plan, on_gpu),
        *pipeline_rules.ignored_settings(plan),
        *balance_rules.ignored_settings(plan),
        *(pipeline_rules.ignored_settings_of_net(plan, graph) if graph else ()),
    ]
    if plan.given("layer_wise_reduce"):
        why = ": gradients travel during backward; see parallel_param"
        found.append(IgnoredSetting(("layer_wise_reduce",), why, f"layer_wise_reduce has no effect{why}"))
    found += unused_settings.ignored_settings(plan.optim)
    for field, reason in fork_fields.NO_EFFECT["SolverParameter"].items():
        if plan.given(field):
            found.append(IgnoredSetting((field,), f": {reason}", f"{field} has no effect: {reason}"))
    return found
