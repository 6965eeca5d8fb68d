"""Between displays, an iteration on a device that computes apart reads no number of it, and updates by few kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bpt.train.solver.solver import Solver
from tests.support.doubles.late_device import late_device
from tests.support.small_solver import small_solver

READS = ("_local_scalar_dense", "is_nonzero", "equal")
METHODS = ("tolist", "numpy", "cpu")
"""Operations, and methods of tensors, by which a host gets numbers of a device, for which it waits."""


class Operations(TorchDispatchMode):
    """Counts torch's operations by their names, and those methods of tensors that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._patch = pytest.MonkeyPatch()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> Operations:
        for name in METHODS:
            self._patch.setattr(torch.Tensor, name, self._counted(name, getattr(torch.Tensor, name)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patch.undo()

    def _counted(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
        def counting(tensor: torch.Tensor, *arguments: Any, **named: Any) -> object:
            self.counts[name] += 1
            return method(tensor, *arguments, **named)

        return counting

    @property
    def reads(self) -> int:
        """How often the host has waited for a number."""
        return sum(self.counts[name] for name in (*READS, *METHODS))


def operations_of_an_iteration(folder: Path, overrides: str) -> Operations:
    plan = small_solver(folder, "display: 0", overrides)
    with late_device(), Solver(plan) as solver:
        for _ in range(2):
            solver.runtime.train()
        with Operations() as seen:
            solver.runtime.train()
        return seen


RULES = ["SGD", "Nesterov", "Adam", "AdamW", "AdaGrad", "RMSProp", "AdaDelta"]


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_lets_the_host_wait(rule: str, tmp_path: Path) -> None:
    momentum = " momentum: 0" if rule in ("AdaGrad", "RMSProp") else ""
    seen = operations_of_an_iteration(tmp_path, f'type: "{rule}" weight_decay: 0.01{momentum}')
    assert seen.reads == 0
    assert seen.counts["convolution_backward"] == 1  # the pass back was seen, too


@pytest.mark.parametrize(
    ("rule", "kernel"),
    [("SGD", "_fused_sgd_"), ("Nesterov", "_fused_sgd_"), ("Adam", "_fused_adam_"), ("AdamW", "_fused_adamw_")],
)
def test_an_update_of_all_parameters_is_one_kernel(rule: str, kernel: str, tmp_path: Path) -> None:
    seen = operations_of_an_iteration(tmp_path, f'type: "{rule}"')
    assert seen.counts[kernel] == 1
    # torch adds one to the number of the iteration, which is a tensor for Adam.
    assert {name for name in seen.counts if name.startswith("_foreach")} <= {"_foreach_add_"}


@pytest.mark.parametrize("setting", ["clip_gradients: 0.1", 'type: "LAMB"'])
def test_what_the_guide_names_lets_the_host_wait(setting: str, tmp_path: Path) -> None:
    """docs/gpu.md lists these settings."""
    assert operations_of_an_iteration(tmp_path, setting).reads > 0


def test_a_read_is_seen() -> None:
    with Operations() as seen:
        float(torch.zeros(()))
        bool(torch.ones(1).any())
        torch.ones(2).tolist()
    assert seen.reads == 3
