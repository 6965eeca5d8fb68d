"""Solver: training as pycaffe shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import ClassVar

import torch

from bpt.allocator import keep_freed_memory
from bpt.comm.launch import launched
from bpt.device import choose_device
from bpt.errors import UserError
from bpt.execute.operator import SegmentOperator
from bpt.plan.resolve import resolve
from bpt.proto.sources import read_solver
from bpt.pycaffe import mode
from bpt.pycaffe.arguments import Path, checked_count, checked_device, several
from bpt.pycaffe.net import Net
from bpt.pycaffe.operator import BlobOperator
from bpt.pycaffe.raised import as_raised
from bpt.pycaffe.single import Single
from bpt.solver import solver as core
from bpt.state import held_for

Call = Callable[[], object]


class SolverParam:
    """Fields of the solver's text that pycaffe shows, as the run has them."""

    def __init__(self, loop: core.Solver) -> None:
        self._loop = loop

    @property
    def base_lr(self) -> float:
        """May be set: the learning rate then follows from it, by the policy, from the next iteration on."""
        return self._loop.plan.optim.base_lr

    @base_lr.setter
    def base_lr(self, rate: float) -> None:
        if not (rate >= 0):
            raise UserError(f"base_lr must be a number from 0 on, not {rate!r}")
        self._loop.go_on_by(replace(self._loop.plan.optim, base_lr=float(rate)))

    @property
    def max_iter(self) -> int:
        return self._loop.plan.max_iter

    @property
    def display(self) -> int:
        return self._loop.plan.display

    @property
    def layer_wise_reduce(self) -> bool:
        """Without effect; true, as in Caffe."""
        return True


class Solver(Single):
    """A solver with its nets, which share their parameters.

    ``net`` is the net that is trained, ``test_nets`` are those that are tested. Between steps all their blobs and
    parameters can be looked at, and changed. Of the iterations of a ``step`` only the last one runs layer by layer, so
    that blobs and diffs are those of it; the others run as fast as on the command line, in the memory layout that turns
    out to be the fastest. For that the process keeps memory that is freed, as that of the command line does. As in
    Caffe a parameter's ``diff`` is after a step what the step has subtracted from its ``data``. A Solver cannot be
    copied or pickled; another restores its snapshot. What the code of a Python layer raises passes as it is.

    A text need not say ``max_iter`` if ``solve`` is not called.

    Args:
        path: the solver's text file.
        overrides: snippets of text format merged over it, like those of ``bpt train --set``: ``"max_iter: 100"``.
        device: where to compute; by default where ``set_mode_cpu`` and ``set_mode_gpu`` of ``bpt.caffe`` say, and if
            neither was called what ``solver_mode`` and ``device_id`` say.

    Raises:
        PrototxtError: a text is wrong; says where.
    """

    rule: ClassVar[str] = ""
    """The solver's ``type``, whatever the text says; "": what that says."""
    _no_copy = (
        "a solver cannot be copied or pickled: write its state by snapshot(), and let another, bpt.get_solver(path), "
        "restore() that"
    )

    def __init__(
        self, path: Path, overrides: str | Sequence[str] = (), device: torch.device | str | None = None
    ) -> None:
        if launched():
            raise UserError(
                "the Python interface trains in one process, and a launcher has started this one: each rank would "
                "train the whole; use mpirun … bpt train, or start Python without mpirun"
            )
        keep_freed_memory()
        source = read_solver(path, several(overrides))
        if not source.param.HasField("max_iter"):
            source.param.max_iter = 0  # Caffe's default: whoever calls step() says how many
        plan = resolve(source)
        if self.rule:
            plan = replace(plan, optim=replace(plan.optim, type=self.rule))
        seed = mode.chosen_seed()
        if plan.random_seed < 0 and seed is not None:
            plan = plan.with_seed(seed)
        chosen = mode.chosen_device() or choose_device(plan) if device is None else checked_device(device)
        with as_raised():
            self._loop = core.Solver(plan, device=chosen, observer=BlobOperator)
        self._callbacks: list[tuple[Call, Call]] = []
        runtime = self._loop.runtime
        self.net = self._shown(runtime.observed)
        self.test_nets = [self._shown(test.operator) for test in runtime.tests]

    @staticmethod
    def _shown(operator: SegmentOperator | None) -> Net:
        assert isinstance(operator, BlobOperator)
        return Net._of(operator)

    @property
    def iter(self) -> int:
        """Iterations done."""
        return self._loop.iter

    @property
    def param(self) -> SolverParam:
        """What of the text can be looked at, and ``base_lr``, which can be set."""
        return SolverParam(self._loop)

    def step(self, iterations: int) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        count = checked_count(iterations, "step: iterations")
        # Who is called at each iteration, or at each layer of it, looks at each of them.
        parts = [1] * count if self._callbacks or self.net._operator.calls else [count]
        for part in parts:
            with self._training():
                self._loop.step(part)

    def apply_update(self) -> None:
        """Change the parameters by their ``diff``, as it stands there, as an iteration would, and count the iteration.

        For passes by hand: ``solver.net.forward()``, ``solver.net.backward()``, ``solver.apply_update()``, and
        ``solver.net.clear_param_diffs()`` before the next ones.
        """
        with self._in_use():
            self._loop.runtime.apply_update()
            self._show_updates()

    def add_callback(self, on_start: Call, on_gradients_ready: Call) -> None:
        """Call these in each iteration from now on: before its passes, and between them and the update."""
        runtime = self._loop.runtime
        self._callbacks.append((on_start, on_gradients_ready))
        runtime.before_passes.append(lambda: self.net._shown_to(on_start))
        runtime.before_update.append(lambda loss: self.net._shown_to(on_gradients_ready))

    def share_weights(self, net: Net) -> None:
        """Let ``net`` have this solver's parameters; see ``Net.share_with``."""
        net.share_with(self.net)

    def solve(self, path: Path | None = None) -> None:
        """Train to ``max_iter``, from the solver state at ``path`` if given; then snapshot and test as it says."""
        if path is not None:
            self.restore(path)
        with self._training(), held_for(self._loop.plan):
            self._loop.solve()

    def snapshot(self) -> str:
        """Write weights and solver state under ``snapshot_prefix``; returns the state's path.

        Raises:
            WriteError: a file could not be written; what stood there before is intact.
        """
        with self._in_use():
            return self._loop.snapshot()

    def restore(self, path: Path) -> None:
        """Go on from the solver state at ``path``.

        Raises:
            FileError: a file is missing, damaged, of another kind, or of another net; it says which.
        """
        with self._in_use():
            self._loop.restore(os.fspath(path))

    def close(self) -> None:
        """End all threads and close the data sources; the solver cannot train after that."""
        self._loop.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with ExitStack() as stack:
            for net in (self.net, *self.test_nets):
                stack.enter_context(net._in_use(new_parameters=True))
            yield

    @contextmanager
    def _training(self) -> Iterator[None]:
        rule = self._loop.runtime.rule
        if any(net._operator.closed for net in (self.net, *self.test_nets)):
            raise UserError("the solver cannot train: the net is closed")
        with self._in_use(), as_raised():
            for parameter in rule.parameters:
                parameter.value.grad = None  # what backward passes by hand have left
            yield
            self._show_updates()

    def _show_updates(self) -> None:
        """As diffs of the parameters, as in Caffe."""
        rule = self._loop.runtime.rule
        updates = rule.updates or [None] * len(rule.parameters)
        for parameter, update in zip(rule.parameters, updates, strict=True):
            parameter.value.grad = None if update is None else update.clone()


def get_solver(path: Path, overrides: str | Sequence[str] = (), device: torch.device | str | None = None) -> Solver:
    """The solver that the text file at ``path`` describes; see Solver."""
    return Solver(path, overrides, device)
