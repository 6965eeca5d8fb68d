"""Score a trained model in its TEST phase, with the log lines of ``caffe test``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing

import torch
from torch import Tensor

from bpt.apps.score.metrics_report import Metrics, MetricsReport, check_confusion_path
from bpt.base.log import log_results, number
from bpt.base.progress import ProgressBar
from bpt.config.plan.nets import file_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.segments import per_layer, whole
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import use_line
from bpt.train.runtime.half_precision import net_in
from bpt.train.runtime.outputs import Outputs
from bpt.train.runtime.parallel_setup import setup_parallelism
from bpt.train.runtime.run_facts import facts_of
from bpt.train.runtime.test_wraparound import wraparound_of_test_set
from bpt.train.runtime.testing import ScoresOfTest, run_test
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.solver.display import loss_note
from bpt.train.state import MissingWeights

LOG = logging.getLogger("bpt")


def score(
    model: str,
    weights: Sequence[str],
    iterations: int,
    device: torch.device,
    level: int = 0,
    stages: tuple[str, ...] = (),
    world: Communicator | None = None,
    metrics: Metrics | None = None,
    precision: str = "FLOAT32",
    missing: MissingWeights = MissingWeights.WARN,
) -> ScoresOfTest:
    """Run batches of a network, log their outputs, and log and return the means; a collective call.

    Args:
        model: the network's text file.
        weights: the files of weights.
        iterations: the number of batches.
        device: the device of this rank.
        level: the network's level.
        stages: the network's stages.
        world: the ranks that divide each batch; ``None``: this one alone. If a net cannot divide its samples, each rank
            runs whole batches.
        metrics: further reports.
        precision: the name of the precision.
        missing: how to treat layers that no file of weights has.

    Raises:
        UserError: a file is wrong, a layer's weights are missing and that is refused, the weights are those of another
            net, or the confusion matrix cannot be written.
    """
    metrics, world = metrics or Metrics(), world or SerialCommunicator()
    LOG.info("%s", use_line(device))
    if metrics.confusion:
        file = metrics.confusion
        outcome_of_first(world, None if world.rank else lambda: check_confusion_path(file))
    graph = build_graph_of(file_plan(model, pb.TEST, level, stages))
    plan = RunPlan(path=model)
    check_same(world, facts_of(plan, graph))
    parallel = setup_parallelism(plan, graph, world, options=TrainOptions(device))
    context, samples = PassContext(), parallel.batches.samples
    if parallel.is_alone or is_dividable(graph):
        context = parallel.batches.context(0, pb.TEST, graph=graph)
    else:  # each rank scores whole batches
        samples = SerialCommunicator()
    net = net_in(precision, graph, device, context, world)
    with parallel, closing(net):
        report = MetricsReport(net, metrics, model)
        if graph.inputs:
            LOG.warning("Nothing sets the net's inputs (%s): they are zeros", ", ".join(graph.inputs))
        load_trained(net, weights, model, world, missing=missing)
        again, remedy = wraparound_of_test_set(net, "the test", iterations, "--iterations")
        if again:
            LOG.warning("%s; %s", again, remedy)
        LOG.info("Running for %d iterations.", iterations)
        with ProgressBar(iterations, label="testing", shown=parallel.grid.world.rank == 0) as progress, report:

            def show(batch: int, outputs: dict[str, Tensor]) -> None:
                for blob, value in outputs.items():
                    for element in value.flatten().tolist():
                        LOG.info("Batch %d, %s = %s", batch, blob, number(element))
                progress.advance()

            operator = Operator(net, per_layer(graph) if graph.debug_info else whole(graph), device)
            outputs = Outputs(net, samples)
            scores = run_test(
                operator, iterations, each=show, debug=graph.debug_info, outputs=outputs, ap_version=metrics.ap_version
            )
        assert scores is not None
        log_results(LOG, [f"Loss: {number(scores.loss)}"])
        for precisions in scores.precisions.values() if metrics.per_class else ():
            for label, value in precisions.by_label.items():
                log_results(LOG, [f"class{label}: {number(value)}{report.detected_name(label)}"])
        for edge in (edge for edge in graph.outputs if edge.blob in scores.outputs):
            for element in scores.outputs[edge.blob].flatten().tolist():
                log_results(LOG, [f"{edge.blob} = {number(element)}{loss_note(edge.loss_weight, element)}"])
        if world.rank == 0 or samples.size > 1:
            report.finish(samples)
        if graph.inputs:  # at the end, where the numbers are
            LOG.warning(
                "%s: these numbers score nothing, because the text has no data and no labels (a deploy text?); give "
                "the text that the net was trained with, such as train_val.prototxt",
                model,
            )
        return scores
