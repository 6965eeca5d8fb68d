"""Solver: training as pycaffe shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType

import torch

from bpt.allocator import keep_freed_memory
from bpt.comm.launch import launched
from bpt.device import choose_device
from bpt.errors import UserError
from bpt.execute.operator import SegmentOperator
from bpt.plan.nets import NetPlan
from bpt.plan.resolve import resolve
from bpt.proto.sources import read_solver
from bpt.pycaffe.arguments import Path, checked_count, checked_device, several
from bpt.pycaffe.net import Net
from bpt.pycaffe.operator import BlobOperator
from bpt.pycaffe.single import Single
from bpt.solver import solver as core
from bpt.state import held_for


class Solver(Single):
    """A solver with its nets, which share their parameters.

    ``net`` is the net that is trained, ``test_nets`` are those that are tested. Between steps all their blobs and
    parameters can be looked at, and changed. Of the iterations of a ``step`` only the last one runs layer by layer, so
    that blobs and diffs are those of it; the others run as fast as on the command line, in the memory layout that turns
    out to be the fastest. For that the process keeps memory that is freed, as that of the command line does. As in
    Caffe a parameter's ``diff`` is after a step what the step has subtracted from its ``data``. A Solver cannot be
    copied or pickled; another restores its snapshot.

    Args:
        path: the solver's text file.
        overrides: snippets of text format merged over it, like those of ``bpt train --set``: ``"max_iter: 100"``.
        device: where to compute; default: what ``solver_mode`` and ``device_id`` say.

    Raises:
        PrototxtError: a text is wrong; says where.
    """

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
        plan = resolve(read_solver(path, several(overrides)))
        chosen = choose_device(plan) if device is None else checked_device(device)
        self._loop = core.Solver(plan, device=chosen, observer=BlobOperator)
        runtime = self._loop.runtime
        self.net = self._shown(runtime.train.plan, runtime.observed)
        self.test_nets = [self._shown(test.plan, test.operator) for test in runtime.tests]

    @staticmethod
    def _shown(plan: NetPlan, operator: SegmentOperator | None) -> Net:
        assert isinstance(operator, BlobOperator)
        return Net._of(plan, operator)

    @property
    def iter(self) -> int:
        """Iterations done."""
        return self._loop.iter

    def step(self, iterations: int) -> None:
        """Train ``iterations`` more iterations; test and write snapshots when they are due."""
        count = checked_count(iterations, "step: iterations")
        with self._training():
            self._loop.step(count)

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
        with self._in_use():
            for parameter in rule.parameters:
                parameter.value.grad = None  # what backward passes by hand have left
            yield
            updates = rule.updates or [None] * len(rule.parameters)
            for parameter, update in zip(rule.parameters, updates, strict=True):
                parameter.value.grad = None if update is None else update.clone()


def get_solver(path: Path, overrides: str | Sequence[str] = (), device: torch.device | str | None = None) -> Solver:
    """The solver that the text file at ``path`` describes; see Solver."""
    return Solver(path, overrides, device)
