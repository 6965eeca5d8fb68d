"""Gradients from what several tasks have made of them: summed in order, by filters, never anybody else's memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.parameter_tasks import _owned, _sum
from tests.support import task_dag_nets as nets


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_go_from_the_first_to_the_last(fresh: bool, count: int) -> None:
    """In float32 another order would lose the small ones: 1e9 - 1e9 + 1 is 1, and 1e9 + (1 - 1e9) is 0."""
    grads = [torch.tensor([value]) for value in (1e9, -1e9, 1.0)][:count]
    target = torch.tensor([7.0])
    _sum(target, grads, fresh)
    assert target.item() == [1e9, 0.0, 1.0][count - 1]  # 7 is lost beside 1e9
    assert [grad.item() for grad in grads] == [1e9, -1e9, 1.0][:count]


def test_a_view_or_another_layout_is_copied() -> None:
    value = nn.Parameter(torch.zeros(2, 3, 4, 4))
    own = torch.ones(2, 3, 4, 4)
    assert _owned(own, value) is own
    for other in (own[:], own.to(memory_format=torch.channels_last), torch.ones(1, 1, 1, 1).expand(2, 3, 4, 4)):
        copied = _owned(other, value)
        assert torch.equal(copied, own)
        assert copied.stride() == value.stride()
        assert copied.data_ptr() != other.data_ptr()


def test_large_gradients_are_summed_by_filters() -> None:
    text = (
        nets.convolution("conv", "x", "num_output: 6 kernel_size: 3")
        + nets.fully_connected("score", "conv", 5)
        + nets.LOSS
    )
    operator = nets.dag_operator(nets.net_of(nets.image_net(text)), threads=3)
    names = [task.name for task in nets.plan_of(operator).backward.tasks]
    assert [name for name in names if name.startswith("conv filters")][:3] == [f"conv filters {n}/3" for n in (1, 2, 3)]
    first = {name: value.clone() for name, value in nets.pass_over(operator).items()}
    operator.net.zero_grad()
    for owner, value in nets.plan_of(operator).parameters.items():
        value.grad = torch.full_like(value, float(owner))
    again = nets.pass_over(operator)
    names_of = {id(value): name for name, value in operator.net.named_parameters()}
    for owner, value in nets.plan_of(operator).parameters.items():
        expected: Tensor = first[names_of[id(value)]] + owner
        torch.testing.assert_close(again[names_of[id(value)]], expected)


def test_the_first_that_needs_room_makes_it() -> None:
    run = DagState()
    made = run.buffer(("a", 1), lambda: torch.zeros(2))
    assert run.buffer(("a", 1), lambda: torch.ones(3)) is made
    run.forget()
    assert run.buffer(("a", 1), lambda: torch.ones(3)) is not made
