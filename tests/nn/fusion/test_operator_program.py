"""Programs of operators do what the recorded work did, also on other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.nn.fusion.operator_program import record_program


def test_a_program_computes_gradients_of_other_inputs() -> None:
    weight = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    x = torch.tensor([[1.0, 2.0]])

    def work() -> Sequence[Tensor]:
        weight.grad = None
        y = functional.relu(functional.linear(x, weight))  # (1 - 4, 3 + 8): only the second output passes
        y.sum().backward()
        assert weight.grad is not None
        return [y.detach(), weight.grad]

    program = record_program(work, [x, weight.detach()])
    y, gradient = program([torch.tensor([[2.0, 1.0]]), weight.detach()])
    assert y.tolist() == [[0.0, 10.0]]
    assert gradient.tolist() == [[0.0, 0.0], [2.0, 1.0]]
    with torch.no_grad():
        weight.fill_(1)
    y, gradient = program([torch.tensor([[2.0, 1.0]]), weight.detach()])
    assert y.tolist() == [[3.0, 3.0]]
    assert gradient.tolist() == [[2.0, 1.0], [2.0, 1.0]]


def test_a_program_changes_its_inputs_and_keeps_other_tensors() -> None:
    sums, other = torch.zeros(2), torch.tensor([10.0, 20.0])

    def work() -> Sequence[Tensor]:
        torch._foreach_mul_([sums], 0.5)
        sums.add_(other)
        first, second = sums.unbind()
        return [torch.stack((second, first)).contiguous(memory_format=torch.contiguous_format)]

    program = record_program(work, [sums])
    assert sums.tolist() == [10.0, 20.0]
    (swapped,) = program([sums])
    assert sums.tolist() == [15.0, 30.0]
    assert swapped.tolist() == [30.0, 15.0]


def test_views_of_memory_that_was_freed_are_not_mistaken() -> None:
    x = torch.arange(1000.0)

    def work() -> Sequence[Tensor]:
        total = torch.zeros(1000)
        for factor in range(20):  # each product has the memory of one that is gone
            total = total + (x * factor).as_strided((1000,), (1,))
        return [total]

    (found,) = record_program(work, [x])([torch.ones(1000)])
    assert found.tolist() == [190.0] * 1000


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda x: [x * float(x.sum())], "reads a value"),
        (lambda x: [x + torch.rand(3)], "draws random numbers"),
        (lambda x: [x.clone().unsqueeze_(0)], "changes the shape"),
    ],
)
def test_work_that_no_program_can_do_is_refused(work: Callable[[Tensor], list[Tensor]], why: str) -> None:
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match=why):
        record_program(lambda: work(x), [x])
