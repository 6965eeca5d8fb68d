"""Checkpoint: what of a run goes into a snapshot, and how a run goes on from one."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bpt import state as snapshot
from bpt.events.event import Activity
from bpt.net import Net
from bpt.optim.rules import UpdateRule
from bpt.plan.digest import file_digest
from bpt.plan.spec import RunPlan
from bpt.proto import bpt_pb2 as pb
from bpt.runtime import starting_point as state
from bpt.runtime.agreement import check_same, outcome_of_first
from bpt.runtime.parallel import Parallel
from bpt.runtime.tuned_settings import Engine, Inner

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Checkpoint:
    """Writes and reads all that a run needs to go on: weights, history, places in the data, how it computes.

    Attributes:
        plan: the run.
        nets: under the names that a snapshot gives them: "train", "test#0", …
        rule: updates the net "train".
        seed: of everything random; it is noted.
        engine, inner: settled before anything is written, and by what is read.
        parallel: which rank holds what.
    """

    plan: RunPlan
    nets: Mapping[str, Net]
    rule: UpdateRule
    seed: int
    engine: Engine
    inner: Inner
    parallel: Parallel

    def write(self, iteration: int, losses: Sequence[float]) -> str:
        """Write a snapshot under ``snapshot_prefix``; returns the state's path. A collective call.

        Args:
            iteration: iterations done.
            losses: those in the smoothed loss.

        Raises:
            WriteError: a file could not be written; what stood there before is intact. All ranks raise it.
        """
        saved = pb.SolverState(
            iter=iteration, loss_history=losses, random_seed=self.seed, solver_type=self.plan.optim.type
        )
        # This run and the one that resumes it must go on alike, or their roundings part.
        saved.engine = self.engine.settle()  # type: ignore[assignment]
        if self.plan.parallel_param.inner_param.engine == pb.InnerParameter.AUTO:
            saved.inner = self.inner.settle()  # type: ignore[assignment]
        saved.data_position.extend(state.positions(self.nets))
        grid, net = self.parallel.grid, self.nets["train"]
        self.parallel.agree(net)

        def write() -> str:
            parts = self.parallel.parts(net.graph)
            with grid.world.events.during(Activity.WRITE):
                return snapshot.write(self.plan, net, self.rule, saved, grid.in_replica, parts)

        return outcome_of_first(grid.world, None if grid.replica else write)

    def restore(self, path: str) -> pb.SolverState:
        """Go on from the solver state at ``path``; returns what is left to take over: iteration and losses.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
            UserError: ranks have different files of this name.
        """
        LOG.info("Resuming from %s", path)
        world = self.parallel.grid.world
        if world.size > 1:
            check_same(world, {f"the snapshot {os.path.basename(path)}": file_digest(path)})
        saved = snapshot.restore(path, self.nets["train"], self.rule)
        state.restore_positions(saved, self.nets)
        if saved.engine:  # what the run had settled on
            self.engine.take_over(saved.engine)
        if saved.HasField("inner"):
            self.inner.take_over(saved.inner)
        if saved.HasField("random_seed") and saved.random_seed != self.seed:
            LOG.warning(
                "the snapshot was made with random_seed %d, this run has %d: data order, augmentation and dropout "
                "go on with other random numbers",
                saved.random_seed,
                self.seed,
            )
        return saved
