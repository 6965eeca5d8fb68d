"""Checkpoint: writes a run's state to snapshots, on disk or in memory, and reads it back."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from bpt.base.errors import BptError, WriteError
from bpt.base.file_digest import file_fact
from bpt.base.log import log_lines
from bpt.config.plan.chosen import chosen_of
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rates import Plateau
from bpt.engine.optim.rules import UpdateRule
from bpt.nn.net import Net
from bpt.parallel.exchange import Exchange
from bpt.system.comm.agreement import check_same, outcome_of_first
from bpt.system.events.event import Activity
from bpt.train import state as snapshot
from bpt.train.runtime.algorithm_setting import AlgorithmSetting
from bpt.train.runtime.averaged_weights import averaged
from bpt.train.runtime.divergence import check_weights
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.tuned_settings import TunedSetting
from bpt.train.state import in_memory
from bpt.train.state.best import Best
from bpt.train.state.blob_gathering import drain, sliced_history
from bpt.train.state.exchange_memory import exchange_state_of, extras_of, lost_memory
from bpt.train.state.train_state import TrainState

LOG = logging.getLogger("bpt")


@dataclass
class Checkpoint:
    """Writes and reads the TrainState of a run, without CGDP's chunks.

    Weights and moments go from and to the tensors of the net and the rule, which a state shares: no copy is made.

    Attributes:
        plan: the run.
        net: the net that is trained.
        rule: the update rule.
        parallel: the division of the net among the ranks.
        exchange: has the slices of parameters, if ranks divide the update.
        tuned: the settings whose trials must be finished before a state is written.
        run: identifies this start of training, on all ranks alike.
        serves: as in TrainOptions.
        written: the existing snapshots of this run, oldest first, on the rank that writes, if old ones are removed.
    """

    plan: RunPlan
    net: Net
    rule: UpdateRule
    parallel: Parallel
    exchange: Exchange
    tuned: Sequence[TunedSetting | AlgorithmSetting]
    run: str
    serves: ParallelSpec | None = None
    written: list[str] = field(default_factory=list)
    _has_room: bool = True  # in memory
    _recorded: bool = False

    @property
    def memory_name(self) -> str:
        """The name of the exchange's memory in a state; a codec's memory is the same with any exchange."""
        return type(self.exchange.codec or self.exchange).__name__

    def go_on(self, state: TrainState) -> None:
        """Continue the run of ``state``, whose snapshots still count as old ones to remove."""
        if state.run not in ("", self.run):
            writes = self.plan.max_snapshots and not self.parallel.grid.world.rank
            self.written = snapshot.of_run(self.plan.snapshot_prefix, state.run, state.iteration) if writes else []
            self.run = state.run

    def settle(self, iteration: int) -> None:
        """Finish all trials, so that this run and the one that resumes it round alike; a collective call."""
        if self.plan.on_nan == pb.SolverParameter.STOP:
            check_weights(iteration, self.net, self.parallel.grid.world)
        for tuned in self.tuned:
            tuned.settle()
        self.parallel.parameters.agree(self.net)

    def is_due_in_memory(self, iteration: int) -> bool:
        """Return whether a snapshot in memory is due after ``iteration`` iterations."""
        every = self.plan.parallel_param.fault_param.memory_snapshot
        return every > 0 and iteration % every == 0 and self._has_room

    def write_in_memory(self, state: TrainState) -> None:
        """Write a snapshot in the memory of the first rank's host as ``write`` does, and replace an older one.

        If there is not enough memory for it, bpt warns once, and the run continues without snapshots in memory.
        """
        world = self.parallel.grid.world
        make = partial(in_memory.make_room, self.plan.snapshot_prefix)
        try:
            prefix = outcome_of_first(world, None if world.rank else make)
            form = pb.SolverParameter.BINARYPROTO
            plan = replace(
                self.plan, snapshot_prefix=prefix, snapshot_format=form, snapshot_diff=False, max_snapshots=0
            )
            path = replace(self, plan=plan, _recorded=True).write(state)
            if world.rank == 0:
                in_memory.remove_older(path)
        except WriteError as error:
            self._has_room = False
            LOG.warning("memory_snapshot: %s; the run continues without snapshots in memory", error)

    def forget_in_memory(self) -> None:
        """Remove the snapshot in memory: a newer one is on disk, or the run has ended."""
        if self.plan.parallel_param.fault_param.memory_snapshot and self.parallel.grid.world.rank == 0:
            in_memory.remove(self.plan.snapshot_prefix)

    def write(self, state: TrainState, name: str = "", average: bool = False) -> str:
        """Write a snapshot under ``snapshot_prefix``; return the path of its solver state. A collective call.

        Args:
            state: this rank's state, with a final memory layout; its tensors are those of the net and the rule.
            name: the name after the prefix; by default ``iter_`` and the number of iterations.
            average: whether to also write the average of the weights to a separate file.

        Raises:
            WriteError: a file could not be written; the previous file is intact. All ranks raise it.
        """
        saved = pb.SolverState(
            iter=state.iteration,
            run=self.run,
            loss_history=state.losses,
            noise=state.noise,
            random_seed=state.seed,
            solver_type=self.plan.optim.type,
            data_position=[
                pb.DataPosition(net=net, layer=layer, samples=samples)
                for (net, layer), samples in state.positions.items()
            ],
        )
        (saved.engine,) = state.tuned["engine"]  # type: ignore[assignment]
        if self.plan.parallel_param.inner_param.engine == pb.InnerParameter.AUTO:
            (saved.inner,) = state.tuned["inner"]  # type: ignore[assignment]
        saved.algorithms.extend(state.tuned.get("algorithms", ()))
        saved.half_layers.extend(state.tuned.get("half_layers", ()))
        saved.shares.extend(state.tuned.get("shares", ()))
        if self.plan.parallel_param.auto:
            saved.chosen.CopyFrom(chosen_of(self.plan.parallel_param))
            saved.ranks = self.parallel.grid.world.size
        if state.loss_scale is not None:
            saved.loss_scale, saved.finite_iterations = state.loss_scale
        if state.plateau is not None:
            saved.current_step, saved.minimum_loss, saved.iter_last_event = state.plateau
        if state.best is not None:
            saved.best_score, saved.best_iter, saved.last_test, saved.tests_since_best = state.best
        if self.rule.averages:
            saved.averaged = True
        grid, name = self.parallel.grid, name or snapshot.name_after(state.iteration)
        memory = exchange_state_of(state.extras, grid.world, self.net.context.precision.master)
        if memory:
            saved.exchange_ranks = grid.world.size

        parts = self.parallel.parts(self.net.graph)
        history = sliced_history(self.net, self.rule, grid.world) if self.parallel.divides_update else ()

        def write_average() -> None:
            if not grid.replica:
                beside = snapshot.average_path(self.plan, name)
                snapshot.save_weights(self.net, beside, comm=grid.in_replica, parts=parts)

        def write() -> str:
            with grid.world.events.during(Activity.WRITE):
                path = snapshot.write(
                    self.plan, self.net, self.rule, saved, grid.in_replica, parts, name, memory, history
                )
                if not grid.world.rank:
                    self._record_preprocessing()
            return path

        def take_part() -> str:
            try:
                return "" if grid.replica else write()
            finally:  # if the first rank has failed, the others must drop the data that it has not read
                drain([*history, *(each.values for each in memory)])

        if average:
            with averaged(self.rule, self.exchange), grid.world.events.during(Activity.WRITE):
                outcome_of_first(grid.world, write_average)
        path = outcome_of_first(grid.world, take_part)
        if self.plan.max_snapshots and grid.world.rank == 0 and name == snapshot.name_after(state.iteration):
            self.written[:] = [*(each for each in self.written if each != path), path]
            snapshot.remove_all_but(self.written, self.plan.max_snapshots)
        return path

    def _record_preprocessing(self) -> None:
        """Record beside the snapshots, once a run, how images become the net's input, if it trains on images."""
        if self._recorded:
            return
        self._recorded = True
        try:
            made = (layer.preprocessing(layer.spec) for layer in self.net.data_layers().values())
            if found := next(filter(None, made), None):
                snapshot.write_preprocessing(self.plan.snapshot_prefix, found)
        except BptError as error:  # a snapshot is worth more
            LOG.warning("How images are prepared is not recorded beside the snapshots: %s", error)

    def read(self, path: str, state: TrainState) -> TrainState:
        """Return this rank's part of the snapshot with the solver state at ``path``. A collective call.

        Args:
            state: the current state. Its seed stays; its tensors, those of the net and the rule, get the file's values.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net, or the weights do not belong to
                the state.
            UserError: ranks have different files of this name.
        """
        LOG.info("Resuming from %s", path)
        world = self.parallel.grid.world
        with in_memory.on_all_hosts(path, world) as here:
            if world.size > 1:
                check_same(world, {f"the snapshot {os.path.basename(path)}": file_fact(here)})
            snapshot.verify(here)
            saved = snapshot.restore(here, self.net, self.rule, world.rank)
            whole = snapshot.read_state(here) if saved.HasField("exchange_ranks") else saved
        if self.plan.max_snapshots and world.rank == 0 and saved.HasField("run"):
            self.written[:] = snapshot.of_run(self.plan.snapshot_prefix, saved.run, saved.iter)
        if saved.HasField("random_seed") and saved.random_seed != state.seed:
            LOG.warning(
                "the snapshot was made with random_seed %d, this run has %d: data order, augmentation and dropout "
                "continue with other random numbers",
                saved.random_seed,
                state.seed,
            )
        tuned: dict[str, tuple[int, ...]] = {"engine": (saved.engine,)} if saved.engine else {}
        if saved.HasField("inner"):
            tuned["inner"] = (saved.inner,)
        if saved.algorithms:
            tuned["algorithms"] = tuple(saved.algorithms)
        if saved.half_layers:
            tuned["half_layers"] = tuple(saved.half_layers)
        if saved.shares:
            tuned["shares"] = tuple(saved.shares)
        settings = self.serves or self.plan.parallel_param
        log_lines(LOG, lost_memory(whole, settings, self.memory_name, world.size), logging.WARNING)
        if saved.exchange_ranks != world.size:
            del saved.exchange_memory[:]
        return replace(
            state,
            iteration=saved.iter,
            positions={(place.net, place.layer): place.samples for place in saved.data_position},
            losses=tuple(saved.loss_history),
            noise=tuple(saved.noise),
            tuned=tuned,
            loss_scale=(saved.loss_scale, saved.finite_iterations) if saved.HasField("loss_scale") else None,
            plateau=state.plateau and Plateau(saved.current_step, saved.minimum_loss, saved.iter_last_event),
            best=_best(saved),
            extras=extras_of(saved),
        )


def _best(saved: pb.SolverState) -> Best | None:
    if not saved.HasField("best_score"):
        return None
    return Best(saved.best_score, saved.best_iter, saved.last_test, saved.tests_since_best)
