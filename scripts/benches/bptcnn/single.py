"""One process that trains what ``scripts/bench bptcnn`` compares with: plain ``bpt train``, but with a record of it.

Seconds are those of training; while it is tested, the clock stands still, as tests of the others delay no worker.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace

from bpt.base.log import start_logging
from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.plan.resolve import resolve
from bpt.config.proto.sources import SolverSource, read_solver
from bpt.nn.layers.base import batch_of
from bpt.system.comm import rank_failure
from bpt.system.comm.base import Communicator
from bpt.train.metrics import ScoreWatch
from bpt.train.outer.data_set import samples_of
from bpt.train.outer.report import NodeRow, RunRecord, TestRow, write_csv
from bpt.train.solver.solver import Solver


def train(source: SolverSource, host: str) -> RunRecord:
    """Train to the end, with tests on the way; the last weights are written as ``bpt train`` does."""
    plan = resolve(source)
    interval, last = plan.test_interval, plan.max_iter
    plan = replace(plan, test_interval=last + 1, test_initialization=False)  # step() must not test: that would count
    solver = Solver(plan)
    batch, samples = batch_of(solver.net.graph), samples_of(solver.net, plan.parallel_param.exchange)
    record = RunRecord("LeNet, one process", weights=0, facts={"exchange": "none", "balance": "none"})
    seconds = 0.0
    while solver.iter < last:
        start = time.perf_counter()
        solver.step(min(interval - solver.iter % interval, last - solver.iter))
        seconds += time.perf_counter() - start
        record.tests.append(_test(solver, seconds, solver.iter * batch / samples))
    record.seconds = seconds
    passes = last * batch / samples
    record.nodes.append(NodeRow(0, host, samples, passes, seconds, 0.0, 0.0, 0, 0, 0))
    solver.snapshot()
    solver.close()
    return record


def _test(solver: Solver, seconds: float, epoch: float) -> TestRow:
    with ScoreWatch(solver.runtime.nets.tests[0].operator.net) as watch:
        scores = solver.test(0)
    assert scores, "a signal has stopped it"
    result = watch.result()
    return TestRow(seconds, solver.iter, epoch, 0, 0, scores.loss, result.accuracy, result.auc)


def serve(path: str, settings: str) -> int:
    """The process; ``settings`` are laid over the solver's text at ``path``."""
    keep_freed_memory()  # this and the next as the command line does

    def command(world: Communicator) -> None:
        start_logging()
        gc.freeze()
        source = read_solver(path, [settings])
        write_csv(train(source, world.host), f"{source.param.snapshot_prefix}_run")

    return rank_failure.run(command)
