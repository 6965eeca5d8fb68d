"""Solver: training as pycaffe shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

import torch

from bpt.apps.arguments import (
    Path,
    checked_call,
    checked_count,
    checked_device,
    checked_kind,
    checked_names,
    checked_number,
    checked_path,
)
from bpt.apps.commands.job import Job
from bpt.apps.plot.history import History
from bpt.base.errors import UserError
from bpt.base.malloc_settings import keep_freed_memory
from bpt.base.origin import ARGUMENT
from bpt.caffe.core import mode
from bpt.caffe.core.net import Net
from bpt.caffe.core.operator import BlobOperator
from bpt.caffe.core.raised import as_raised
from bpt.caffe.core.single import Single
from bpt.config.plan.nets import test_plans, train_plan
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import read_solver
from bpt.system.comm.launch import world
from bpt.system.device import choose_device
from bpt.train.runtime.run_facts import held_by_first
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver import solver as core
from bpt.train.solver.milestones import Bound, Listener, Milestone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Call = Callable[[], object]


class SolverParam:
    """Fields of the solver's text that pycaffe shows, with the values that the run uses."""

    def __init__(self, loop: core.Solver) -> None:
        self._loop = loop

    @property
    def base_lr(self) -> float:
        """The base learning rate. After it is set, the policy computes each learning rate from the new value."""
        return self._loop.plan.optim.base_lr

    @base_lr.setter
    def base_lr(self, rate: float) -> None:
        if checked_number(rate, "base_lr") < 0:
            raise UserError(f"base_lr must be a number from 0 on, not {rate!r}")
        self._loop.set_lr_schedule(replace(self._loop.plan.optim, base_lr=float(rate)))

    @property
    def max_iter(self) -> int:
        return self._loop.plan.max_iter

    @property
    def display(self) -> int:
        return self._loop.plan.display

    @property
    def layer_wise_reduce(self) -> bool:
        """True, as in Caffe; the setting has no effect here."""
        return True


class Solver(Single):
    """A solver with its nets, which share their parameters.

    ``net`` is the net that is trained, ``test_nets`` are those that are tested. Between steps the caller can read and
    change all their blobs and parameters. Only the last iteration of a ``step`` runs layer by layer, so that blobs and
    diffs are those of this iteration. The others run as fast as on the command line, in the fastest memory layout; for
    that the process keeps freed memory for reuse, as the command line does. As in Caffe, after a step a parameter's
    ``diff`` is the value that the step has subtracted from its ``data``. A Solver cannot be copied or pickled; write a
    snapshot, and restore it in another Solver. An exception of a Python layer's code reaches the caller unchanged.

    The text needs ``max_iter`` only for ``solve``.

    Under ``mpirun python script.py`` all ranks train together, as under ``mpirun bpt train``: each calls the same
    methods in the same order, and its nets have its share of a batch. ::

        with bpt.Solver("solver.prototxt", "max_iter: 200") as solver:
            solver.solve()
            print(solver.history.test[-1].values["accuracy"])

    Attributes:
        history: losses, outputs, scores and rates so far; see ``bpt.apps.plot.history.History``.

    Args:
        path: the solver's text file.
        overrides: snippets of text format merged over it, like those of ``bpt train --set``: ``"max_iter: 100"``.
        device: device to compute on; by default that of ``set_mode_cpu`` or ``set_mode_gpu`` of ``bpt.caffe`` and, if
            neither was called, that of ``solver_mode`` and ``device_id``.

    Raises:
        PrototxtError: a text is wrong; the message says where.
    """

    rule: ClassVar[str] = ""
    """The solver's ``type``, which replaces that of the text; "" keeps the text's type."""
    _no_copy = (
        "a solver cannot be copied or pickled: write its state by snapshot(), and let another, bpt.get_solver(path), "
        "restore() that"
    )

    def __init__(
        self, path: Path, overrides: str | Sequence[str] = (), device: torch.device | str | None = None
    ) -> None:
        keep_freed_memory()
        source = read_solver(checked_path(path, "the solver"), checked_names(overrides, "overrides"), ARGUMENT)
        if not source.param.HasField("max_iter"):
            source.param.max_iter = 0  # Caffe's default; the caller of step() gives the number of iterations
        plan = resolve(source)
        if self.rule:
            plan = replace(plan, optim=replace(plan.optim, type=self.rule))
        seed = mode.chosen_seed()
        if plan.random_seed < 0 and seed is not None:
            plan = plan.with_seed(seed)
        job = Job.enter(world())
        _check_goes_in_step(plan, job.world.size)
        chosen = mode.chosen_device() if device is None else checked_device(device)
        if job.world.size > 1:
            chosen = job.choose(plan) if chosen is None else chosen
        self._callbacks: list[tuple[Call, Call]] = []
        self._nets: list[Net] = []
        self._plan = plan
        self.history = History(os.path.basename(os.fspath(path)).removesuffix(".prototxt"))
        with as_raised():
            self._loop = core.Solver(
                plan,
                TrainOptions(chosen or choose_device(plan), observer=BlobOperator if _is_whole(plan) else None),
                world=job.world,
                listeners=[self._show, self.history],
            )

    def _show(self, milestone: Milestone) -> None:
        """Wrap the nets that train and test from now on; recovery from a loss of ranks builds new ones."""
        if not isinstance(milestone, Bound) or not _is_whole(self._plan):
            return
        operators = [
            milestone.runtime.passes.observing.operator,
            *(test.operator for test in milestone.runtime.nets.tests),
        ]
        self._nets = []
        for operator, plan in zip(operators, (train_plan(self._plan), *test_plans(self._plan)), strict=True):
            assert isinstance(operator, BlobOperator)
            self._nets.append(Net._of(operator, plan))
        for calls in self._callbacks:
            self._hook(milestone.runtime, *calls)

    @property
    def net(self) -> Net:
        """The net that is trained."""
        return self._shown()[0]

    @property
    def test_nets(self) -> list[Net]:
        """The nets that are tested."""
        return self._shown()[1:]

    def _shown(self) -> list[Net]:
        if not self._nets:
            raise UserError(
                "with num_stages or num_shards no rank has the whole net, so the solver cannot show it: load a "
                "snapshot, bpt.Net(path, phase, weights=...)"
            )
        return self._nets

    @property
    def iter(self) -> int:
        """Number of completed iterations."""
        return self._loop.iter

    @property
    def lr(self) -> float:
        """The learning rate of the next iteration."""
        return self._loop.runtime.updater.rates(self.iter)

    @property
    def loss(self) -> float:
        """The loss of the last iteration, smoothed by ``average_loss``."""
        return self._loop.loss

    @property
    def listeners(self) -> list[Listener]:
        """Functions that are called with each milestone (see ``bpt.train.solver.milestones``). Append yours.

        ::

            solver.listeners.append(print)
        """
        return self._loop.listeners

    def plot(self, path: Path = "") -> Figure:
        """Plot the losses, tests and rates in ``history`` (see History.plot)."""
        return self.history.plot(checked_path(path, "plot: what is given"))

    @property
    def param(self) -> SolverParam:
        """The fields of the text that can be read, and ``base_lr``, which can be set."""
        return SolverParam(self._loop)

    def step(self, iterations: int) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        count = checked_count(iterations, "step: iterations")
        # Callbacks may read the blobs of each iteration, so each must run layer by layer, as the last one of a step.
        parts = [1] * count if self._callbacks or any(net._operator.calls for net in self._nets[:1]) else [count]
        for part in parts:
            with self._training():
                self._loop.step(part)

    def apply_update(self) -> None:
        """Update the parameters from their ``diff`` as an iteration does, and count the iteration.

        It is for passes by hand: ``solver.net.forward()``, ``solver.net.backward()``, ``solver.apply_update()``, and
        ``solver.net.clear_param_diffs()`` before the next passes.
        """
        with self._in_use():
            self._loop.runtime.apply_update()
            self._show_updates()

    def add_callback(self, on_start: Call, on_gradients_ready: Call) -> None:
        """Call ``on_start`` before the passes of each iteration, and ``on_gradients_ready`` before its update."""
        checked_call(on_start, "add_callback: on_start")
        checked_call(on_gradients_ready, "add_callback: on_gradients_ready")
        self._callbacks.append((on_start, on_gradients_ready))
        self._hook(self._loop.runtime, on_start, on_gradients_ready)

    def _hook(self, runtime: Runtime, on_start: Call, on_gradients_ready: Call) -> None:
        runtime.passes.before.append(lambda: self.net._shown_to(on_start))
        runtime.updater.before_update.append(lambda loss: self.net._shown_to(on_gradients_ready))

    def share_weights(self, net: Net) -> None:
        """Share this solver's parameters with ``net`` (see ``Net.share_with``)."""
        checked_kind(net, Net, "share_weights: what is given").share_with(self.net)

    def solve(self, path: Path | None = None) -> None:
        """Train to ``max_iter``, from the solver state at ``path`` if given; then snapshot and test as the text says.

        Raises:
            FileError: as in ``restore``.
            WriteError: as in ``snapshot``.
        """
        if path is not None:
            self.restore(path)
        with self._training(), held_by_first(self._loop.plan, self._loop.runtime.world):
            self._loop.solve()

    def snapshot(self) -> str:
        """Write weights and solver state under ``snapshot_prefix``, and return the state's path.

        Raises:
            WriteError: a file could not be written; the previous file of that name is intact.
        """
        with self._in_use():
            return self._loop.snapshot()

    def restore(self, path: Path) -> None:
        """Continue from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; the message names it.
        """
        with self._in_use():
            self._loop.restore(checked_path(path, "restore: what is given"))

    def close(self) -> None:
        """End all threads and close the data sources; the solver cannot train after that."""
        self._loop.close()

    def __repr__(self) -> str:
        loop = self._loop
        what = f'"{loop.net.graph.name}" by {loop.plan.optim.type}'
        return f"<Solver of {what}: iteration {loop.iter} of {loop.plan.max_iter}, lr {self.lr:g}>"

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with ExitStack() as stack:
            for net in self._nets:
                stack.enter_context(net._in_use(new_parameters=True))
            yield

    @contextmanager
    def _training(self) -> Iterator[None]:
        rule = self._loop.runtime.updater.rule
        if any(net._operator.closed for net in self._nets):
            raise UserError("the solver cannot train: the net is closed")
        with self._in_use(), as_raised():
            net = self._loop.runtime.net
            for value in (*map(net.value, net.local_params), *(parameter.value for parameter in rule.parameters)):
                value.grad = None  # drop the gradients of backward passes by hand
            yield
            self._show_updates()

    def _show_updates(self) -> None:
        """Store the updates as diffs of the parameters, as in Caffe."""
        rule = self._loop.runtime.updater.rule
        updates = rule.updates or [None] * len(rule.parameters)
        for parameter, update in zip(rule.parameters, updates, strict=True):
            parameter.value.grad = None if update is None or parameter.elements else update.clone()


def _is_whole(plan: RunPlan) -> bool:
    """Return whether each rank has the whole net."""
    return plan.parallel_param.depth == plan.parallel_param.num_shards == 1


def _check_goes_in_step(plan: RunPlan, ranks: int) -> None:
    if plan.is_outer and ranks > 1:
        raise UserError(
            "with exchange: SGWU, AGWU or ASGD the ranks have no common steps, so a Python script cannot lead them "
            "step by step: bpt.launch(path, ranks), or mpirun … bpt train, runs the whole training"
        )


def get_solver(path: Path, overrides: str | Sequence[str] = (), device: torch.device | str | None = None) -> Solver:
    """Return the Solver that the text file at ``path`` describes."""
    return Solver(path, overrides, device)
