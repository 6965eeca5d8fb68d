from __future__ import annotations

import torch

from tests.support.one_layer import flops_of, one_layer, tops_of


def test_copies_share_data_but_not_diffs() -> None:
    x = torch.rand(2, 3, requires_grad=True)
    copies = tops_of(one_layer('type: "Split"', (2, 3), tops=3), x)
    assert len({id(copy) for copy in (x, *copies)}) == 4
    assert {copy.data_ptr() for copy in copies} == {x.data_ptr()}
    for copy in copies:
        copy.retain_grad()
    (copies[0] + 2 * copies[1]).sum().backward()
    assert copies[0].grad is not None
    assert copies[1].grad is not None
    assert x.grad is not None
    assert torch.equal(copies[0].grad, torch.ones(2, 3))
    assert torch.equal(copies[1].grad, torch.full((2, 3), 2.0))
    assert copies[2].grad is None
    assert torch.equal(x.grad, torch.full((2, 3), 3.0))


def test_copying_costs_no_flops() -> None:
    assert flops_of('type: "Split"', (2, 3)) == 0
